"""Log-probs of the sampler and of the learner that differ."""

from __future__ import annotations

from whet.doctor.findings import Metrics

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
