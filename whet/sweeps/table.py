"""The results of a sweep: a row for each run, and the mean of each setting over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.errors import UserError
from whet.plots.curves import RunData
from whet.plots.runs import as_arms, read_run

_METRICS = ("val/accuracy", "val/reward", "val/loss", "reward/overall", "actor/loss")
_MOST = 3  # metrics shown


def table(folder: Path, codes: Mapping[str, int], names: Sequence[str]) -> list[str]:
    """Return the lines of the table; runs without a step have none but their state."""
    runs: dict[str, RunData] = {}
    for name in names:
        try:
            runs[name] = read_run(folder / name)
        except UserError:
            continue
    shown = [metric for metric in _METRICS if any(run.curve(metric) for run in runs.values())][:_MOST]
    rows = [["run", "steps", *shown, ""]]
    for name in names:
        run = runs.get(name)
        steps = str(run.metrics[-1]["step"]) if run else "-"
        rows.append([name, steps, *(_last(run, metric) for metric in shown), _state(codes.get(name))])
    for arm in as_arms(list(runs.values())) if runs else []:
        if len(arm.runs) > 1:
            rows.append([f"mean of {arm.name}", "", *(_mean(arm.runs, metric) for metric in shown), ""])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _state(code: int | None) -> str:
    if code is None:
        return "not started"
    return "" if code == 0 else "interrupted" if code == 130 else f"failed (exit code {code})"


def _last(run: RunData | None, metric: str) -> str:
    curve = run.curve(metric) if run else []
    return f"{curve[-1][1]:.4g}" if curve else "-"


def _mean(runs: Sequence[RunData], metric: str) -> str:
    lasts = [curve[-1][1] for run in runs if (curve := run.curve(metric))]
    if not lasts:
        return "-"
    return f"{sum(lasts) / len(lasts):.4g} ({min(lasts):.4g} to {max(lasts):.4g})"
