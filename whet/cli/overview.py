"""The text of `whet --help`, assembled from the subcommands, and of `whet NAME --help`."""

from __future__ import annotations

from whet.cli.command import COMMANDS, Command
from whet.cli.fitting import columns, fitted
from whet.config.examples import examples_folder
from whet.errors import UserError

_BEFORE = """\
whet sharpens language models with reinforcement learning.

usage: whet COMMAND [arguments]
"""
_AFTER = """
whet COMMAND --help explains a command, with examples. Settings: whet config. Examples: {examples}
"""


def overview() -> str:
    """Return one line for each subcommand, with what stands before and after."""
    lines = {f"whet {name}": _summary(name) for name in COMMANDS.names} | {"whet --version": "print the version"}
    width = max(map(len, lines))
    listed = "".join(f"  {name:<{width}}  {summary}\n" for name, summary in lines.items())
    return _filled(f"{_BEFORE}\n{listed}{_AFTER}")


def page(command: Command) -> str:
    """Return the help of one subcommand."""
    return _filled(command.help)


def _summary(name: str) -> str:
    """Return a subcommand's line; one of an installed package that cannot be imported says so and hides no other."""
    try:
        found = COMMANDS.find(name)
    except UserError as error:
        return f"(unusable: {str(error).splitlines()[0]})"
    return found.summary if isinstance(found, Command) else f"(unusable: a {type(found).__name__}, no Command)"


def _filled(text: str) -> str:
    return fitted(text.replace("{examples}", str(examples_folder())).rstrip("\n"), columns())
