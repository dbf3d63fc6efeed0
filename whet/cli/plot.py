"""`whet plot`: curves of one or more runs."""

from __future__ import annotations

import os
from pathlib import Path

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

_HELP = """\
usage: whet plot RUN [RUN ...] [--out FILE] [--metric NAME ...] [--dark]

Draw the curves of runs: reward, accuracy, loss, response length, entropy, KL, gradient norm, seconds a step. A RUN is a
run folder, or a folder of runs. Runs that differ in their seed alone are drawn as their mean, with a band from the
lowest to the highest.

  --out FILE       .svg, .png, or .html for an interactive page that needs no network (pip install 'whet[plots]');
                   curves.svg in the run folder, or here for several runs
  --metric NAME    this metric instead, as metrics.jsonl names it; several times for several
  --dark           dark background of a PNG; an SVG follows the reader's system

Examples:
  whet plot checkpoints/whet/quickstart
  whet plot runs/a runs/b --out compare.png
  whet plot sweep --metric val/accuracy --out accuracy.html
"""


def _run(arguments: list[str]) -> int:
    from whet.plots.chart import lay_out
    from whet.plots.curves import panels
    from whet.plots.picture import Plot
    from whet.plots.png import to_png
    from whet.plots.runs import as_arms, find_runs

    folders, metrics, out, dark = _parse(arguments)
    runs = [run for folder in folders for run in find_runs(folder)]
    arms = as_arms(runs)
    charts = panels(arms, metrics)
    file = out or (runs[0].folder / "curves.svg" if len(runs) == 1 else Path("curves.svg"))
    if not file.parent.is_dir():
        raise UserError(f"--out {file}: there is no folder {file.parent}")
    if file.suffix == ".html":
        from whet.plots.page import to_html

        _write(file, to_html(charts, ", ".join(arm.name for arm in arms[:4])).encode())
    elif file.suffix == ".png" and dark:
        _write(file, to_png(lay_out(charts), dark=True))
    else:
        Plot(lay_out(charts)).save(file)
    print(f"{file}: {len(charts)} charts of {len(runs)} run{'s' * (len(runs) > 1)}")
    return 0


def _parse(arguments: list[str]) -> tuple[list[str], list[str], Path | None, bool]:
    options = read_options("plot", arguments, ("--out", "--metric"), ("--dark",))
    folders = options.words
    out = Path(os.path.expanduser(options.last("--out"))) if "--out" in options.values else None
    if not folders:
        raise UserError("whet plot takes run folders: whet plot checkpoints/whet/quickstart")
    if out is not None and out.suffix not in (".svg", ".png", ".html"):
        raise UserError(f"--out {out}: the name must end in .svg, .png or .html")
    return folders, options.values.get("--metric", []), out, "--dark" in options.switches


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from error


COMMAND = Command(summary="draw the curves of runs, with bands over seeds", help=_HELP, run=_run)
