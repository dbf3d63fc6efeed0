"""Responses that collapse or grow in length without a gain in reward."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, SHORT, LONG, GAIN = 5, 0.25, 3.0, 0.02


class ChangedLength:
    """The length of responses has left its range, in times of the first steps', and the reward has not risen."""

    def __init__(self, name: str, evidence: tuple[str, ...], change: str, remedy: str) -> None:
        self.name, self.evidence = name, ("response_length/mean", *evidence, "reward/overall")
        self._change, self._remedy = change, remedy
        self._length, self._reward = Level(WINDOW), Level(WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare length and reward of the latest steps with those of the first."""
        if "response_length/mean" in metrics and "reward/overall" in metrics:
            self._length.add(metrics["response_length/mean"])
            self._reward.add(metrics["reward/overall"])
        if not self._length.is_known or self._reward.latest - self._reward.first > GAIN:
            return None
        first, latest = self._length.first, self._length.latest
        holds = latest < SHORT * first if self._change == "shrank" else latest > LONG * first
        if not holds:
            return None
        return (
            f"responses {self._change} from {first:.0f} to {latest:.0f} tokens while the reward went from "
            f"{self._reward.first:.3f} to {self._reward.latest:.3f} (means over {WINDOW} steps): {self._remedy}"
        )


def shortened() -> ChangedLength:
    """Return the rule for responses that have become a fraction of their first length."""
    return ChangedLength(
        "shortened",
        ("response_length/min",),
        "shrank",
        "the policy stops before it answers. Look at the shortest responses in samples/: the loss may favour short "
        "ones (worker.actor.loss_avg_mode=token), a penalty for length may outweigh the score, or the learning rate "
        "is too high.",
    )


def lengthened() -> ChangedLength:
    """Return the rule for responses that have become several times as long as at first."""
    return ChangedLength(
        "lengthened",
        ("response_length/max", "response_length/clip_ratio"),
        "grew",
        "length costs time and brings nothing. Look at the longest responses in samples/ for repeated text: see that "
        "the end token is sampled and trained on, add a penalty for overlong responses, or lower the learning rate.",
    )
