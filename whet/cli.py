"""The command line: `whet train`, `whet config`, `whet model`, `whet merge`.

Imports of torch and transformers wait until a command needs them, so that help and config errors come at once.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from whet import __version__
from whet.cluster import WorkerLostError, WorkerRaisedError
from whet.errors import UserError

USAGE = """\
whet sharpens language models with reinforcement learning.

  whet train [config=FILE] [key=value ...]     train; with no arguments, the built-in quickstart
  whet config [config=FILE] [key=value ...]    every key with its type, default and meaning
  whet config --diff [config=FILE] ...         only what differs from the defaults
  whet model NAME DIR                          write a built-in model as a Hugging Face folder (smollm2, quickstart)
  whet merge CHECKPOINT DIR [BASE]             write the model of a LoRA run with its adapters merged in
  whet --version

Keys: whet config. Examples: {examples}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it went well, 2 for a mistake of the user's, 1 for a lost worker, 130 when stopped."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they would tear our own
    try:
        return _dispatch(arguments)
    except UserError as error:
        print(f"whet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("whet: stopped at once; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (WorkerLostError, WorkerRaisedError) as error:
        print(f"whet: {error}", file=sys.stderr)
        print(f"The last checkpoint is as it was; this goes on from it: whet {shlex.join(arguments)}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `whet config | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "config": _config,
        "model": _model,
        "merge": _merge,
    }
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE.format(examples=examples_folder()))
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"whet {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in commands:
        from whet.config import nearest

        near = nearest(name, commands)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"there is no command {name!r}{hint} (whet --help lists them)")
    if any(a in ("-h", "--help") for a in rest):
        print(USAGE.format(examples=examples_folder()))
        return 0
    return commands[name](rest)


def examples_folder() -> Path:
    """The examples: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "examples"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "examples"


def _train(arguments: list[str]) -> int:
    from whet.config import check_config, check_files, load_config

    named = any(argument.startswith("config=") for argument in arguments)
    config = load_config(arguments, None if named else examples_folder() / "quickstart.yaml")
    check_config(config)
    check_files(config)

    from whet.run.train import train

    train(config)
    return 0


def _config(arguments: list[str]) -> int:
    from whet.config import describe, diff, load_config

    only_changes = "--diff" in arguments
    config = load_config([argument for argument in arguments if argument != "--diff"])
    print(diff(config) if only_changes else describe(config))
    return 0


def _model(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise UserError("whet model takes a name and a folder: whet model smollm2 DIR")
    from whet.assets.models import write_model

    write_model(arguments[0], Path(arguments[1]), print)
    return 0


def _merge(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        raise UserError("whet merge takes a checkpoint and a folder: whet merge checkpoints/.../global_step_N DIR")
    from whet.run.merge import merge_checkpoint

    checkpoint, folder = (Path(argument).expanduser() for argument in arguments[:2])
    merge_checkpoint(checkpoint, folder, arguments[2] if len(arguments) == 3 else None, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
