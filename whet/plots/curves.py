"""Curves of runs: the metrics of each step as charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.plots.chart import Panel, Series

# Title of a panel, the metric of training and the metric of validation; "" where there is none.
PANELS = (
    ("reward", "reward/overall", "val/reward"),
    ("accuracy", "reward/accuracy", "val/accuracy"),
    ("loss", "actor/loss", "val/loss"),
    ("response length", "response_length/mean", "val/response_length_mean"),
    ("entropy", "actor/entropy", ""),
    ("KL to the reference", "actor/kl_loss", ""),
    ("KL to the reference", "actor/reward_kl", ""),
    ("gradient norm", "actor/grad_norm", ""),
    ("seconds a step", "timing_s/step", ""),
)


@dataclass(frozen=True, slots=True)
class RunData:
    """Metrics by step and flat config of one run folder."""

    folder: Path
    metrics: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run's experiment name; its folder's where the run was given a folder, or no name."""
        folder = self.folder.resolve().name
        if self.settings.get("trainer.save_checkpoint_path"):
            return folder
        return str(self.settings.get("trainer.experiment_name") or folder)

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """Return the points (step, value) of a metric."""
        found = [(row["step"], row.get(metric)) for row in self.metrics]
        return [(step, float(y)) for step, y in found if isinstance(y, int | float) and not isinstance(y, bool)]


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs that differ in their seed alone, under one name."""

    name: str
    runs: Sequence[RunData]


def panels(arms: Sequence[Arm], metrics: Sequence[str] = ()) -> list[Panel]:
    """Return the charts of these metrics, or those that say most about a run."""
    wanted = [(name, name, "") for name in metrics] or list(PANELS)
    drawn: dict[str, list[Series]] = {}
    for title, trained, validated in wanted:
        for place, arm in enumerate(arms):
            train = _series(arm, trained, place, faint=bool(validated))
            val = _series(arm, validated, place) if validated else None
            found = [each for each in (train, val) if each is not None]
            if train is not None and val is None:
                found = [s for s in [_series(arm, trained, place)] if s is not None]
            drawn.setdefault(title, []).extend(found)
    empty = [name for name in metrics if not drawn[name]]
    if empty:
        known = sorted({key for arm in arms for run in arm.runs for row in run.metrics for key in row} - {"step"})
        raise UserError(f"no run has a metric {empty[0]}{_near(empty[0], known)}")
    return [Panel(title, series) for title, series in drawn.items() if series]


def _near(name: str, known: Sequence[str]) -> str:
    from whet.config import nearest

    near = nearest(name, known)
    return f"; did you mean {near}?" if near else f"; there are {', '.join(known[:20])}"


def _series(arm: Arm, metric: str, place: int, faint: bool = False) -> Series | None:
    """Return an arm's curve of a metric: the mean of its runs at each step that all of them logged, and their range."""
    curves = [dict(run.curve(metric)) for run in arm.runs]
    curves = [curve for curve in curves if curve]
    if not curves:
        return None
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = [(step, [curve[step] for curve in curves]) for step in steps]
    values = [(step, ys) for step, ys in values if all(math.isfinite(y) for y in ys)]
    points = [(step, sum(ys) / len(ys)) for step, ys in values]
    band = [(step, min(ys), max(ys)) for step, ys in values] if len(curves) > 1 else []
    return Series(arm.name, points, place, [] if faint else band, faint) if points else None
