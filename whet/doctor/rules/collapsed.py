"""Reward that is far below where the run began."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, SHARE, LEAST = 5, 0.5, 0.02


class CollapsedReward:
    """The reward has lost half of what it was in the first steps."""

    name = "collapsed"
    evidence: tuple[str, ...] = ("reward/overall", "actor/lr", "actor/grad_norm", "actor/entropy")

    def __init__(self) -> None:
        self._reward = Level(WINDOW)
        self._start: float | None = None

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the reward of the latest steps with that of the very first, before any update."""
        reward = metrics.get("reward/overall")
        if reward is None:
            return None
        self._start = reward if self._start is None else self._start
        self._reward.add(reward)
        start, latest = max(self._start, self._reward.first), self._reward.latest
        if not self._reward.is_known or start < LEAST or latest >= SHARE * start:
            return None
        return (
            f"the reward fell from {start:.3f} at the start to {latest:.3f} (mean over {WINDOW} steps): the run "
            "unlearns what the model could do. The usual reason is a learning rate that is too high for the batch: "
            f"lower worker.actor.optim.lr (now {metrics.get('actor/lr', float('nan')):.3g}) by ten times, or make the "
            "batch larger; else look whether good samples have positive advantages in samples/."
        )
