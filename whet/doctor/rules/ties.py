"""Groups without a difference in score."""

from __future__ import annotations

import math

from whet.doctor.findings import Metrics

TIED_STEPS = 5
FEWEST_STEPS = 2  # of a whole run, for a sentence about it


class Ties:
    """No sample has an advantage for five steps, or in a shorter run: all samples of each group score the same."""

    name = "ties"
    evidence: tuple[str, ...] = ("advantage/max", "advantage/min", "reward/overall", "batch/solve_all")

    def __init__(self, total: int | None = None) -> None:
        """`total` is the number of steps of the run, if it is known."""
        self._enough = TIED_STEPS if total is None else min(TIED_STEPS, max(FEWEST_STEPS, total))
        self._steps = 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which every advantage is 0."""
        if "advantage/max" in metrics:  # else the step trained on nothing, which batch/empty_steps counts
            tied = metrics["advantage/max"] == metrics["advantage/min"] == 0
            self._steps = self._steps + 1 if tied else 0
        return self._sentence(metrics) if self._steps >= self._enough else None

    def _sentence(self, metrics: Metrics) -> str:
        seen = (
            f"in {self._steps} steps in a row the samples of every prompt scored the same, so that no sample had an "
            f"advantage and nothing was learned (mean reward {metrics.get('reward/overall', math.nan):.3f}). "
        )
        if metrics.get("batch/solve_all", 0.0) >= 0.99:
            return seen + "Every prompt is solved: stop here, or train on harder data."
        return seen + (
            "Look at responses in samples/ and at their scores: the reward function may miss right answers, the prompt "
            "may not ask for the form that it reads, or the data is too hard for this model (easier rows, a larger "
            "worker.rollout.n, whet sft first)."
        )
