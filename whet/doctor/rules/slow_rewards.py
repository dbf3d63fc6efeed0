"""Rewards that the run waits for."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, SHARE, SECONDS = 5, 0.5, 1.0


class SlowRewards:
    """Most of the time of several steps is spent waiting for scores."""

    name = "slow_rewards"
    evidence: tuple[str, ...] = ("timing_s/reward", "timing_s/rollout", "timing_s/update", "timing_s/step")

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which rewards took longer than everything else."""
        waited, whole = metrics.get("timing_s/reward"), metrics.get("timing_s/step")
        if waited is None or whole is None or not self._streak.update(waited > max(SECONDS, SHARE * whole)):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {SHARE:.0%} of the time was spent waiting for rewards "
            f"after the last sample was finished (now {waited:.1f} of {whole:.1f} seconds). Give them more processes "
            "(worker.reward.num_cpus), make the function faster or its time limit shorter "
            "(worker.reward.timeout), or let sampling go on meanwhile (trainer.max_staleness=1)."
        )
