"""Time of a step in which nothing is sampled or trained."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, SHARE, SECONDS = 5, 0.5, 1.0
_OUTSIDE = ("timing_s/step", "timing_s/validate")


class IdleDevice:
    """Most of the time of several steps belongs to no stage: the device waits for something else."""

    name = "idle"
    evidence: tuple[str, ...] = ("timing_s/step", "timing_s/rollout", "timing_s/update", "perf/tokens_per_s")

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row whose stages take less than half of their time."""
        whole = metrics.get("timing_s/step")
        if whole is None or "timing_s/rollout" not in metrics or "timing_s/update" not in metrics:
            return None
        stages = sum(value for name, value in metrics.items() if name.startswith("timing_s/") and name not in _OUTSIDE)
        idle = whole - stages
        if not self._streak.update(idle > max(SECONDS, SHARE * whole)):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {SHARE:.0%} of the time belonged to no stage (now "
            f"{idle:.1f} of {whole:.1f} seconds): the device waits. See the step's timeline in whet board; slow disks "
            "(samples/ and checkpoints), decoding images, or other programs on this machine are usual reasons."
        )
