"""KL to the reference model that grows out of bounds."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, LIMIT = 3, 1.0  # nats a token; runs that learn stay below 0.2
KL = ("actor/kl_loss", "actor/reward_kl")


class KlBlowUp:
    """The policy is far from the reference model for several steps."""

    name = "kl"
    evidence: tuple[str, ...] = (*KL, "actor/kl_coef", "reward/overall")

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row with a KL above the limit."""
        name = next((each for each in KL if each in metrics), None)
        if name is None:
            return None
        if not self._streak.update(not metrics[name] <= LIMIT):  # NaN counts
            return None
        return (
            f"in {self._streak.steps} steps in a row the KL to the reference model was above {LIMIT:g} nats a token "
            f"({name} {metrics[name]:.3g}; runs that learn stay below 0.2): the policy writes text that the reference "
            "model finds absurd. Look at responses in samples/; lower worker.actor.optim.lr or raise "
            "algorithm.kl_coef."
        )
