"""Find the subcommand, run it, and turn errors into a sentence and an exit code.

Imports of torch and transformers wait until a command needs them, so that help and config errors come at once.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from whet import __version__
from whet.cli.command import COMMANDS, Command
from whet.config.problems import hint
from whet.config.texts import check_arguments, printable
from whet.errors import DivergedError, RewardsFailedError, UserError, WorkerLostError, WorkerRaisedError
from whet.system.launch import is_silent, launched, refuse_command, say

_HELP = ("-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: 0 on success, 2 for a mistake of the user's, 130 when stopped.

    1 for a lost worker, for training that diverged, and for a reward function that fails on every sample.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they would tear our own
    if is_silent():
        from whet.system.patience import Patience

        Patience()
    try:
        return _dispatch(arguments)
    except UserError as error:
        say(f"whet: {error}")
        return 2
    except (DivergedError, RewardsFailedError) as error:
        say(f"whet: {error}")
        return 1
    except KeyboardInterrupt:
        say("whet: stopped at once; the same command goes on from the last checkpoint")
        return 130
    except (WorkerLostError, WorkerRaisedError) as error:
        from whet.config.secrets import masked_arguments

        again = "the same torchrun command" if launched() else "this"
        command = shlex.join(["whet", *masked_arguments(arguments)])
        say(f"whet: {error}\nThe last checkpoint is as it was; {again} goes on from it: {command}")
        return 1
    except FileNotFoundError as error:
        if "temporary directory" not in str(error):
            raise
        say(f"whet: {error.strerror}: free some space on the disk, or set TMPDIR to a folder that can be written to")
        return 2
    except BrokenPipeError:  # `whet config | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in (*_HELP, "help"):
        from whet.cli.overview import overview

        print(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"whet {__version__}")
        return 0
    check_arguments(arguments)
    name, rest = arguments[0], arguments[1:]
    command = _command(name)
    if any(argument in _HELP for argument in _before_dashes(rest)):
        from whet.cli.overview import page

        print(page(command))
        return 0
    if not command.under_torchrun:
        refuse_command(name)
    return command.run(rest)


def _command(name: str) -> Command:
    if name not in COMMANDS.built_in and name not in COMMANDS.names:
        near = hint(name, COMMANDS.names)
        raise UserError(f"there is no command {printable(name)[:80]!r}{near} (whet --help lists them)")
    found = COMMANDS.find(name)
    if not isinstance(found, Command):
        raise UserError(f"whet {name}: is of type {type(found).__name__}; it must be a whet.cli.command.Command")
    return found


def _before_dashes(arguments: list[str]) -> list[str]:
    """Return the arguments before `--`; those after it are another program's."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments
