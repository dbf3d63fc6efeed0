"""Entropy that collapses before the task is solved."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level

WINDOW, SHARE, SOLVED = 5, 0.1, 0.5


class EntropyCollapse:
    """The policy hardly varies its answers any more while most prompts are unsolved: nothing new is tried."""

    name = "entropy"
    evidence: tuple[str, ...] = ("actor/entropy", "batch/solve_all", "reward/overall")

    def __init__(self) -> None:
        self._entropy, self._solved = Level(WINDOW), Level(WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the entropy of the latest steps with that of the first."""
        if "actor/entropy" in metrics and "batch/solve_all" in metrics:
            self._entropy.add(metrics["actor/entropy"])
            self._solved.add(metrics["batch/solve_all"])
        if not self._entropy.is_known:
            return None
        first, latest = self._entropy.first, self._entropy.latest
        if latest >= SHARE * first or self._solved.latest >= SOLVED:
            return None
        return (
            f"the entropy of the policy fell from {first:.3g} to {latest:.3g} nats a token (means over {WINDOW} steps) "
            f"while only {self._solved.latest:.0%} of the prompts are solved by all samples: samples of a prompt are "
            "nearly the same, so that nothing new is tried. Lower worker.actor.optim.lr, raise "
            "worker.actor.clip_ratio_high (0.28) or worker.actor.entropy_coeff, or sample at a higher "
            "worker.rollout.temperature."
        )
