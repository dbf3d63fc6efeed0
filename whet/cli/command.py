"""`Command`: one subcommand of `whet`, as its module or an installed package defines it.

A module `whet/cli/NAME.py` with `COMMAND = Command(...)` is the subcommand NAME. Help imports all of them, so such a
module imports torch, transformers and the job it starts inside `run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whet.config.registry import Registry


@dataclass(frozen=True)
class Command:
    """A subcommand: a line for `whet --help`, a page for `whet NAME --help`, and the function that runs it.

    `run` gets the arguments after the name and returns the exit code. It raises a `UserError` for a mistake of the
    user's. `{examples}` in `help` stands for the folder of examples.
    """

    summary: str
    help: str
    run: Callable[[list[str]], int]
    under_torchrun: bool = False  # runs in every process of torchrun; else refused there


class _Commands(Registry):
    def label(self, name: str) -> str:
        """Return how a user writes a subcommand."""
        return f"whet {name}"


COMMANDS = _Commands("whet", "whet.cli", "COMMAND", entry_points="whet.commands")
