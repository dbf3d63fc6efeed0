"""Responses that collapse in length without a gain in reward."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, SHARE, GAIN = 5, 0.25, 0.02


class ShortenedResponses:
    """Responses have become a fraction of their first length, and the reward has not risen."""

    name = "shortened"
    evidence: tuple[str, ...] = ("response_length/mean", "response_length/min", "reward/overall")

    def __init__(self) -> None:
        self._length, self._reward = Level(WINDOW), Level(WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare length and reward of the latest steps with those of the first."""
        if "response_length/mean" in metrics and "reward/overall" in metrics:
            self._length.add(metrics["response_length/mean"])
            self._reward.add(metrics["reward/overall"])
        if not self._length.is_known:
            return None
        short = self._length.latest < SHARE * self._length.first
        if not short or self._reward.latest - self._reward.first > GAIN:
            return None
        return (
            f"responses shrank from {self._length.first:.0f} to {self._length.latest:.0f} tokens while the reward went "
            f"from {self._reward.first:.3f} to {self._reward.latest:.3f} (means over {WINDOW} steps): the policy stops "
            "before it answers. Look at the shortest responses in samples/: the loss may favour short ones "
            "(worker.actor.loss_avg_mode=token), a penalty for length may outweigh the score, or the learning rate is "
            "too high."
        )
