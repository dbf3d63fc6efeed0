"""Ratios that are clipped for most tokens."""

from __future__ import annotations

from whet.doctor.findings import Metrics
from whet.doctor.streak import Streak

STEPS, SHARE = 3, 0.5
CLIPPED = ("actor/pg_clipfrac_higher", "actor/pg_clipfrac_lower")


class ClippedRatios:
    """The loss clips most tokens for several steps, so that they have no gradient."""

    name = "clipping"
    evidence: tuple[str, ...] = (*CLIPPED, "actor/ppo_kl", "actor/lr")

    def __init__(self) -> None:
        self._streak = Streak(STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which more than half of the tokens were clipped."""
        shares = [metrics[name] for name in CLIPPED if name in metrics]
        if not shares or not self._streak.update(max(shares) > SHARE):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {SHARE:.0%} of the tokens were clipped (now "
            f"{max(shares):.0%}) and taught nothing: the policy moves too far within a step. Lower "
            "worker.actor.optim.lr or worker.actor.ppo_epochs, make mini-batches larger "
            "(worker.actor.global_batch_size), or widen worker.actor.clip_ratio_low and clip_ratio_high."
        )
