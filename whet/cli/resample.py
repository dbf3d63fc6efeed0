"""`whet resample`: a sample of a run once more, or continued from a token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

_HELP = """\
usage: whet resample RUN --step N --row N [--split val] [--checkpoint N | --live] [--at N ...] [--json]

Draw a sample of a run again, from the checkpoint whose policy wrote it and with the same random numbers: the same
tokens come out, one by one, and the command says whether they do. With --at, --temperature, --prompt or --n, branch it:
keep the first tokens and draw continuations, scored by the run's own reward. Rows are those of samples/*.parquet, as
the board numbers them. But with --live, nothing is written to the run folder.

  --step N, --row N   the sample; --split val for one of a validation
  --checkpoint N      step of another checkpoint, 0 for the first weights
  --live              branch with the engine of a run that is going on, which draws between two of its steps
  --at N              keep the first N tokens of the response
  --token ID          put this token behind them; --text TEXT names it by its text
  --temperature T     another temperature
  --prompt TEXT       another prompt, with its chat template applied as in samples/
  --n N               number of continuations, 1 where none is given; the first has the sample's own random numbers
  --alternatives K    draw nothing, and list the K likeliest tokens at each place
  --json              print the whole answer as JSON

Examples:
  whet resample checkpoints/whet/quickstart --step 26 --row 0
  whet resample checkpoints/whet/quickstart --step 26 --row 0 --at 3 --temperature 1.5 --n 4
  whet resample checkpoints/whet/quickstart --step 25 --row 2 --split val --alternatives 3

Guide: docs/board.md
"""

_NUMBERS = {
    "--step": "step",
    "--row": "row",
    "--checkpoint": "checkpoint",
    "--at": "at",
    "--token": "token",
    "--n": "n",
    "--alternatives": "top",
}
_TEXTS = {"--split": "split", "--text": "text", "--prompt": "prompt"}
_BRANCHES = ("at", "token", "text", "temperature", "prompt", "n", "live")


def _run(arguments: list[str]) -> int:
    folder, given, as_json = _parse(arguments)
    from whet.resample.request import read_request

    request = read_request(given)

    from whet.resample.command import show

    show(folder, request, as_json)
    return 0


def _parse(arguments: list[str]) -> tuple[Path, dict[str, Any], bool]:
    names = {**_NUMBERS, **_TEXTS, "--temperature": "temperature"}
    options = read_options("resample", arguments, tuple(names), ("--json", "--live"))
    folders = [Path(os.path.expanduser(word)) for word in options.words]
    given: dict[str, Any] = {"live": True} if "--live" in options.switches else {}
    for name, values in options.values.items():
        given[names[name]] = values[-1] if name in _TEXTS else _number(name, values[-1], name in _NUMBERS)
    if len(folders) != 1:
        raise UserError(
            "whet resample takes one run folder: whet resample checkpoints/whet/quickstart --step 26 --row 0"
        )
    if not folders[0].is_dir():
        raise UserError(f"whet resample: there is no folder {folders[0]}")
    kind = "tokens" if "top" in given else "branch" if any(name in given for name in _BRANCHES) else "again"
    return folders[0], {"kind": kind, **given}, "--json" in options.switches


def _number(name: str, text: str, whole: bool) -> float:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise UserError(f"whet resample: {name} {text} must be a {'whole ' * whole}number") from None


COMMAND = Command(summary="draw a sample of a run again, or branch it at a token", help=_HELP, run=_run)
