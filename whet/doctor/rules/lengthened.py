"""Responses that grow without a gain in reward."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, TIMES, GAIN = 5, 3.0, 0.02


class LengthenedResponses:
    """Responses have become several times as long as at first, and the reward has not risen."""

    name = "lengthened"
    evidence: tuple[str, ...] = (
        "response_length/mean",
        "response_length/max",
        "response_length/clip_ratio",
        "reward/overall",
    )

    def __init__(self) -> None:
        self._length, self._reward = Level(WINDOW), Level(WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare length and reward of the latest steps with those of the first."""
        if "response_length/mean" in metrics and "reward/overall" in metrics:
            self._length.add(metrics["response_length/mean"])
            self._reward.add(metrics["reward/overall"])
        if not self._length.is_known:
            return None
        long = self._length.latest > TIMES * self._length.first
        if not long or self._reward.latest - self._reward.first > GAIN:
            return None
        return (
            f"responses grew from {self._length.first:.0f} to {self._length.latest:.0f} tokens while the reward went "
            f"from {self._reward.first:.3f} to {self._reward.latest:.3f} (means over {WINDOW} steps): length costs "
            "time and brings nothing. Look at the longest responses in samples/ for repeated text: see that the end "
            "token is sampled and trained on, add a penalty for overlong responses, or lower the learning rate."
        )
