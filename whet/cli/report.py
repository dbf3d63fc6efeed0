"""`whet report`: a run as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

_HELP = """\
usage: whet report RUN [--out FILE.html] [--lang zh]

Write one HTML file about a run, to send to somebody: what the doctor found, curves, a table of numbers, the best and
the worst samples of the last validation (or step), and what its config changes. The file needs nothing else and has
no script.

  --out FILE       report.html in the run folder where none is named
  --lang zh        labels in Chinese; en is English

Examples:
  whet report checkpoints/whet/quickstart
  whet report checkpoints/whet/quickstart --out quickstart.html
"""


def _run(arguments: list[str]) -> int:
    folder, out, language = _parse(arguments)
    from whet.board.report import write_report

    file = write_report(folder, out, language)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
    return 0


def _parse(arguments: list[str]) -> tuple[Path, Path | None, str]:
    options = read_options("report", arguments, ("--out", "--lang"))
    folders = [Path(os.path.expanduser(word)) for word in options.words]
    out = Path(os.path.expanduser(options.last("--out"))) if "--out" in options.values else None
    language = options.last("--lang", "en")
    if language not in ("en", "zh"):
        raise UserError("whet report: --lang is en or zh")
    if len(folders) != 1:
        raise UserError("whet report takes one run folder: whet report checkpoints/whet/quickstart")
    if out is not None and out.suffix != ".html":
        raise UserError(f"--out {out}: the name must end in .html")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    return folders[0], out, language


COMMAND = Command(summary="write one HTML file about a run: curves, findings, samples", help=_HELP, run=_run)
