"""Samples that are too old for the policy they train."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, MOVED, OLD = 3, 0.05, 4.0  # nats a token, and updates


class StaleSamples:
    """Samples come from policies many updates ago, or from fewer while the policy changes fast."""

    name = "staleness"
    evidence: tuple[str, ...] = ("async/staleness_mean", "async/staleness_max", "rollout/log_prob_diff_mean")

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row on samples that are stale."""
        age = metrics.get("async/staleness_mean")
        if age is None:
            return None
        gap = metrics.get("rollout/log_prob_diff_mean", 0.0)
        if not self._streak.update(age >= OLD or (age >= 1 and not gap <= MOVED)):
            return None
        return (
            f"in {self._streak.steps} steps in a row samples were stale: {age:.1f} updates old on average, with "
            f"log-probs that differ from the learner's by {gap:.3f} a token. Lower trainer.max_staleness or "
            "worker.actor.optim.lr, reweight with algorithm.rollout_correction, or move devices from the learner to "
            "the sampler."
        )
