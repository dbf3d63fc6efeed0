"""Reward that has fallen far below its best."""

from __future__ import annotations

from collections import deque

from whet.doctor.findings import Metrics

WINDOW, SHARE = 10, 0.5


class FallenReward:
    """The mean reward has lost half of what the run had gained."""

    name = "fallen"
    evidence: tuple[str, ...] = ("reward/overall", "actor/grad_norm", "actor/entropy", "actor/kl_loss")

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=WINDOW)
        self._best: float | None = None
        self._first: float | None = None

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the mean over the latest steps with the best such mean."""
        if "reward/overall" in metrics:
            self._latest.append(metrics["reward/overall"])
        if len(self._latest) < WINDOW:
            return None
        mean = sum(self._latest) / WINDOW
        self._first = mean if self._first is None else self._first
        self._best = mean if self._best is None else max(self._best, mean)
        gained, spread = self._best - self._first, max(self._latest) - min(self._latest)
        # A gain within the noise of single steps is none, and cannot be lost.
        if gained <= spread or self._best - mean <= SHARE * gained:
            return None
        return (
            f"the reward fell from its best of {self._best:.3f} to {mean:.3f} (means over {WINDOW} steps; "
            f"{self._first:.3f} at the start): what was learned is being lost. Go on from an earlier checkpoint "
            "(trainer.keep_best keeps the best one) with a lower worker.actor.optim.lr, or with a KL term."
        )
