"""Rules about where samples come from: sampler and learner that differ, old samples, a device that waits."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

DRIFT_STEPS, DRIFT = 3, 0.1  # nats a token; bfloat16 engines are at 0.005 to 0.03


class LogProbDrift:
    """Sampler and learner give the same tokens different probabilities for several steps."""

    name = "drift"
    evidence: tuple[str, ...] = ("rollout/log_prob_diff_mean", "rollout/log_prob_diff_max")

    def __init__(self) -> None:
        self._steps = 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row with a mean difference above what rounding explains."""
        gap = metrics.get("rollout/log_prob_diff_mean")
        if gap is not None:
            self._steps = self._steps + 1 if not gap <= DRIFT else 0  # NaN counts
        if self._steps < DRIFT_STEPS or gap is None:
            return None
        return (
            f"in {self._steps} steps in a row log-probs of the sampler and of the learner differed by more than "
            f"{DRIFT:g} a token (rollout/log_prob_diff_mean {gap:.3f}; rounding in bfloat16 gives about 0.01), so that "
            "the policy is trained on what another one sampled. Look at the engine: its dtype or quantization, its "
            "chat template and the weights it received; worker.rollout.name=native or hf shows whether it is the "
            "engine; algorithm.rollout_correction reweights what remains."
        )


STALE_STEPS, STALE_MOVED, STALE_OLD = 3, 0.05, 4.0  # nats a token, and updates


class StaleSamples:
    """Samples come from policies many updates ago, or from fewer while the policy changes fast."""

    name = "staleness"
    evidence: tuple[str, ...] = ("async/staleness_mean", "async/staleness_max", "rollout/log_prob_diff_mean")

    def __init__(self) -> None:
        self._streak = Streak(STALE_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row on samples that are stale."""
        age = metrics.get("async/staleness_mean")
        if age is None:
            return None
        gap = metrics.get("rollout/log_prob_diff_mean", 0.0)
        if not self._streak.update(age >= STALE_OLD or (age >= 1 and not gap <= STALE_MOVED)):
            return None
        return (
            f"in {self._streak.steps} steps in a row samples were stale: {age:.1f} updates old on average, with "
            f"log-probs that differ from the learner's by {gap:.3f} a token. Lower trainer.max_staleness or "
            "worker.actor.optim.lr, reweight with algorithm.rollout_correction, or move devices from the learner to "
            "the sampler."
        )


IDLE_STEPS, IDLE_SHARE, IDLE_SECONDS = 5, 0.5, 1.0
IDLE_OUTSIDE = ("timing_s/step", "timing_s/validate")


class IdleDevice:
    """Most of the time of several steps belongs to no stage: the device waits for something else."""

    name = "idle"
    evidence: tuple[str, ...] = ("timing_s/step", "timing_s/rollout", "timing_s/update", "perf/tokens_per_s")

    def __init__(self) -> None:
        self._streak = Streak(IDLE_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row whose stages take less than half of their time."""
        whole = metrics.get("timing_s/step")
        if whole is None or "timing_s/rollout" not in metrics or "timing_s/update" not in metrics:
            return None
        stages = sum(
            value for name, value in metrics.items() if name.startswith("timing_s/") and name not in IDLE_OUTSIDE
        )
        idle = whole - stages
        if not self._streak.update(idle > max(IDLE_SECONDS, IDLE_SHARE * whole)):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {IDLE_SHARE:.0%} of the time belonged to no stage (now "
            f"{idle:.1f} of {whole:.1f} seconds): the device waits. See the step's timeline in whet board; slow disks "
            "(samples/ and checkpoints), decoding images, or other programs on this machine are usual reasons."
        )
