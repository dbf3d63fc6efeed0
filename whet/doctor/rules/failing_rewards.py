"""Rewards that fail for a part of the samples."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, SHARE = 3, 0.05
KINDS = ("raised", "timeout", "died", "bad_result")


class FailingRewards:
    """The reward function gives no score for many samples, step after step."""

    name = "failing_rewards"
    evidence: tuple[str, ...] = ("reward/failed", *(f"reward/{kind}" for kind in KINDS))

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which more samples than a few have no score."""
        failed, samples = metrics.get("reward/failed"), _samples(metrics)
        if failed is None or not samples:
            return None
        if not self._streak.update(failed > SHARE * samples):
            return None
        kind = max(KINDS, key=lambda each: metrics.get(f"reward/{each}", 0.0))
        return (
            f"in {self._streak.steps} steps in a row the reward function failed for more than {SHARE:.0%} of the "
            f"samples (now {failed:.0f} of about {samples:.0f}, most often: {kind}); they count as worthless. What it "
            "printed is in reward.log; give it more time (worker.reward.timeout), or let it return a score for every "
            "text."
        )


def _samples(metrics: Metrics) -> float:
    """Return the number of samples of a step, from its tokens and their mean lengths; 0 where it is not known."""
    lengths = metrics.get("prompt_length/mean", 0.0) + metrics.get("response_length/mean", 0.0)
    return metrics.get("perf/total_tokens", 0.0) / lengths if lengths else 0.0
