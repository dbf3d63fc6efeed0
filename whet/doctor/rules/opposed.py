"""Reward that rises while the accuracy of the same samples falls."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, CHANGE = 5, 0.05
ACCURACY = ("reward/accuracy", "reward/acc")


class OpposedScores:
    """What drives training and what people watch go opposite ways."""

    name = "opposed"
    evidence: tuple[str, ...] = ("reward/overall", *ACCURACY)

    def __init__(self) -> None:
        self._reward, self._accuracy = Level(WINDOW), Level(WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare both scores of the latest steps with those of the first."""
        accuracy = next((metrics[name] for name in ACCURACY if name in metrics), None)
        if accuracy is not None and "reward/overall" in metrics:
            self._reward.add(metrics["reward/overall"])
            self._accuracy.add(accuracy)
        if not self._reward.is_known:
            return None
        gained, lost = self._reward.latest - self._reward.first, self._accuracy.first - self._accuracy.latest
        if gained <= CHANGE or lost <= CHANGE:
            return None
        return (
            f"the reward rose from {self._reward.first:.3f} to {self._reward.latest:.3f} while the accuracy of these "
            f"samples fell from {self._accuracy.first:.3f} to {self._accuracy.latest:.3f} (means over {WINDOW} steps): "
            "the policy is paid for something else than right answers. Look at the best samples in samples/ and at how "
            "worker.reward.reward_function makes overall of its scores (its sign, the weight of each part)."
        )
