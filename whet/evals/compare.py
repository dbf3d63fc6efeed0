"""Compare runs: keys of their configs that differ, and their results with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from whet.evals.statistics import intervals
from whet.plots.curves import RunData
from whet.plots.runs import differences

DRAWS, CONFIDENCE = 2000, 0.95
_CELL = 36  # longest value shown
_RESULTS = (("val/accuracy", True), ("val/reward", True), ("val/loss", False))  # and whether higher is better


def compare(runs: Sequence[RunData]) -> list[str]:
    """Return a table of the runs, line by line: the first column names what differs, the others are the runs."""
    rows: list[tuple[str, list[str]]] = [("", _titles(runs))]
    differing = differences(runs)
    rows.append((f"config ({len(differing) or 'no'} difference{'s' * (len(differing) != 1)})", []))
    rows += [(f"  {key}", [_cell(value) for value in values]) for key, values in differing.items()]
    rows.append(("results", []))
    rows.append(("  steps", [str(run.metrics[-1]["step"]) for run in runs]))
    for metric, higher in _RESULTS:
        rows += _result_rows(runs, metric, higher)
    rows.append(("  seconds a step (median)", [_seconds(run) for run in runs]))
    return [*_aligned(rows), *_paired_lines(runs)]


def _titles(runs: Sequence[RunData]) -> list[str]:
    """Name runs by their folders' last parts, as many as tell them apart."""
    parts = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.folder) for run in runs]


def _result_rows(runs: Sequence[RunData], metric: str, higher: bool) -> list[tuple[str, list[str]]]:
    curves = [run.curve(metric) for run in runs]
    if not any(curves):
        return []
    first = [_number(metric, curve[0][1]) if curve else "-" for curve in curves]
    last = []
    for run, curve in zip(runs, curves):
        interval = _interval(run, metric, int(curve[-1][0])) if curve else ""
        last.append(f"{_number(metric, curve[-1][1])}{interval}" if curve else "-")
    choose = max if higher else min
    best = [choose(curve, key=lambda point: point[1]) if curve else None for curve in curves]
    at_best = [f"{_number(metric, point[1])} at step {point[0]:g}" if point else "-" for point in best]
    return [(f"  {metric}, first", first), (f"  {metric}, last", last), (f"  {metric}, best", at_best)]


def _number(metric: str, value: float) -> str:
    return f"{100 * value:.1f}%" if metric == "val/accuracy" else f"{value:.4g}"


def _interval(run: RunData, metric: str, step: int) -> str:
    scores = list(_scores(run.folder, metric, step).values())
    if len(scores) < 2:
        return ""
    found = intervals({"mean": scores}, DRAWS, CONFIDENCE)["mean"]
    assert found.low is not None
    assert found.high is not None
    return f" ({_number(metric, found.low)} to {_number(metric, found.high)})"


def _scores(folder: Path, metric: str, step: int) -> dict[str, float]:
    """Return the mean score of each validation prompt of a step; {} where samples were not logged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = {"val/accuracy": "score/accuracy", "val/reward": "reward"}.get(metric)
    file = folder / "samples" / f"val_{step:06d}.parquet"
    if column is None or not file.is_file():
        return {}
    try:
        rows = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException):
        return {}
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get(column) is not None:
            scores[f"{row.get('uid')} {row.get('prompt')}"].append(float(row[column]))
    return {prompt: sum(values) / len(values) for prompt, values in scores.items()}


def _paired_lines(runs: Sequence[RunData]) -> list[str]:
    """Return the difference of each later run from the first, over the prompts that both validated."""
    lines = []
    for metric in ("val/accuracy", "val/reward"):
        curves = [run.curve(metric) for run in runs]
        if not all(curves):
            continue
        base = _scores(runs[0].folder, metric, int(curves[0][-1][0]))
        for run, curve, title in list(zip(runs, curves, _titles(runs)))[1:]:
            other = _scores(run.folder, metric, int(curve[-1][0]))
            shared = [prompt for prompt in base if prompt in other]
            if len(shared) < 2:
                continue
            found = intervals({"d": [other[p] - base[p] for p in shared]}, DRAWS, CONFIDENCE)["d"]
            assert found.low is not None
            assert found.high is not None
            shown = [
                f"{100 * x:+.1f}" if metric == "val/accuracy" else f"{x:+.4g}"
                for x in (found.mean, found.low, found.high)
            ]
            unit = " points" if metric == "val/accuracy" else ""
            lines.append(
                f"{metric}, last: {title} minus {_titles(runs)[0]} = {shown[0]}{unit} ({shown[1]} to {shown[2]}, "
                f"{CONFIDENCE:.0%} by the bootstrap over {len(shared)} prompts that both validated)"
            )
    return lines and ["", *lines]


def _seconds(run: RunData) -> str:
    seconds = [y for _, y in run.curve("timing_s/step")]
    return f"{median(seconds):.3g}" if seconds else "-"


def _cell(value: Any) -> str:
    text = "(not set)" if value is None else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def _aligned(rows: Sequence[tuple[str, list[str]]]) -> list[str]:
    first = max(len(name) for name, _ in rows)
    count = max(len(cells) for _, cells in rows)
    widths = [max(len(cells[i]) for _, cells in rows if i < len(cells)) for i in range(count)]
    lines = []
    for name, cells in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths)]
        lines.append("  ".join([name.ljust(first), *padded]).rstrip())
    return lines
