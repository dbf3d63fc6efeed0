"""The command line: `whet train`, `whet sft`, `whet eval`, `whet serve` and the others of USAGE.

Imports of torch and transformers wait until a command needs them, so that help and config errors come at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from whet import __version__
from whet.assets.examples import examples_folder
from whet.distributed import WorkerLostError, WorkerRaisedError
from whet.distributed.launch import Patience, is_silent, launched, refuse_command, say, take_devices
from whet.errors import DivergedError, RewardsFailedError, UserError
from whet.usage import HELP, USAGE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: 0 on success, 2 for a mistake of the user's, 130 when stopped.

    1 for a lost worker, for training that diverged, and for a reward function that fails on every sample.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they would tear our own
    if is_silent():
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
    except BrokenPipeError:  # `whet config | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "sft": _sft,
        "generate": _generate,
        "eval": _eval,
        "serve": _serve,
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
    from whet.config.texts import check_arguments, printable

    check_arguments(arguments)
    name, rest = arguments[0], arguments[1:]
    if name not in commands:
        from whet.config import nearest

        near = nearest(name, commands)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"there is no command {printable(name)[:80]!r}{hint} (whet --help lists them)")
    if any(a in ("-h", "--help") for a in rest):
        print(HELP.get(name, USAGE).format(examples=examples_folder()))
        return 0
    if name != "sft":
        refuse_command(name)
    return commands[name](rest)


def _train(arguments: list[str]) -> int:
    from whet.config.jobs import load_job

    config = load_job("train", arguments, examples_folder())

    from whet.training.job import train

    train(config)
    return 0


def _sft(arguments: list[str]) -> int:
    from whet.config.jobs import load_job

    shown, arguments = _shown_rows(arguments)
    launch = launched()
    devices = (lambda config: take_devices(config, launch)) if launch is not None else None
    config = load_job("sft", arguments, examples_folder(), devices)
    if launch is not None and launch.rank > 0:
        from whet.distributed.torchrun import serve_first

        return 0 if shown is not None else serve_first(launch, config.trainer.device)
    if shown is not None:
        from whet.supervised.show import show

        show(config, shown, print)
        return 0

    from whet.supervised.job import sft

    sft(config, launch)
    return 0


def _shown_rows(arguments: list[str]) -> tuple[int | None, list[str]]:
    """How many rows `--show [N]` asks for, and the other arguments; None where it does not stand."""
    if "--show" not in arguments:
        return None, arguments
    at = arguments.index("--show")
    count = arguments[at + 1 : at + 2]
    if count and count[0].isdecimal():
        if len(count[0]) > 6:
            raise UserError(f"--show {count[0][:20]}...: shows at most 999999 rows")
        return int(count[0]), arguments[:at] + arguments[at + 2 :]
    return 3, arguments[:at] + arguments[at + 1 :]


def _generate(arguments: list[str]) -> int:
    from whet.config.jobs import load_job

    config = load_job("generate", arguments)

    from whet.evals.generate import generate

    generate(config)
    return 0


def _eval(arguments: list[str]) -> int:
    if arguments == ["--list"]:
        from whet.evals.registry import listing

        print(listing())
        return 0
    from whet.config.jobs import load_job

    config = load_job("eval", arguments)

    from whet.evals.evaluate import evaluate

    evaluate(config, examples_folder())
    return 0


def _serve(arguments: list[str]) -> int:
    from whet.config.checks.serve import check_libraries
    from whet.config.jobs import load_job
    from whet.serving.naming import model_argument

    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        arguments = [model_argument(arguments[0]), *arguments[1:]]
    config = load_job("serve", arguments)
    check_libraries()

    from whet.serving.server import serve

    serve(config, lambda text: print(text, flush=True))
    return 0


def _config(arguments: list[str]) -> int:
    from whet.config import load_config
    from whet.config.describe import describe, diff, search
    from whet.config.loading.arguments import is_config_file

    words = [word for word in arguments if "=" not in word and not word.startswith("-") and not is_config_file(word)]
    config = load_config([argument for argument in arguments if argument != "--diff" and argument not in words])
    if words:
        print(search(words, config, _columns()))
    else:
        print(diff(config) if "--diff" in arguments else describe(config, _columns()))
    return 0


def _columns() -> int | None:
    """Return the width to wrap text to; None where output goes to a file or a pipe and COLUMNS does not say."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def _model(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise UserError("whet model takes a name and a folder: whet model smollm2 DIR")
    from whet.assets.models import write_model

    write_model(arguments[0], Path(arguments[1]), print)
    return 0


def _merge(arguments: list[str]) -> int:
    from whet.merge.options import parse

    options = parse(arguments)

    from whet.merge.command import merge

    merge(options, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
