"""`algorithm.distill.*`: a teacher whose token distributions the policy learns on its own samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key

DIVERGENCES = ("reverse_kl", "forward_kl", "jsd")


@dataclass(frozen=True)
class DistillConfig:
    """On-policy distillation."""

    model_path: str | None = key(
        None, "model folder, hub id or built-in name of the teacher, with the policy's vocabulary; null = none"
    )
    model_paths: dict[str, Any] = field(
        default_factory=dict,
        metadata=about("teachers of their own for some values of the column data_source; model_path has all others"),
    )
    format_prompt: str | None = key(
        None,
        "template of the teacher's prompts, with a hint in them; without model_path the policy is the teacher",
    )
    use: str = key(
        "loss",
        "loss = divergence over the vocabulary; advantage = log teacher - log policy of each sampled token",
        choices=("loss", "advantage"),
    )
    divergence: str = key(
        "reverse_kl",
        "of use=loss: KL(policy, teacher), KL(teacher, policy), or generalised Jensen-Shannon between them",
        choices=DIVERGENCES,
    )
    beta: float = key(
        0.5, "of jsd: weight of the teacher in the mixture; 0 is forward_kl, 1 reverse_kl", least=0, most=1
    )
    coef: float = key(1.0, "weight of the teacher", above=0)
    reward_coef: float = key(0.0, "weight of the policy loss (use=loss) or of the rewards' advantages", least=0)
    trust_remote_code: bool = key(False, "run Python code that comes with the teacher")

    @property
    def active(self) -> bool:
        """True if there is a teacher."""
        return self.model_path is not None or self.format_prompt is not None

    @property
    def paths(self) -> dict[str | None, str]:
        """Teachers by data source; None has all others. Empty if the policy is its own teacher."""
        named: dict[str | None, str] = {}
        if self.model_path is not None:
            named[None] = self.model_path
            named.update(self.model_paths)
        return named

    @property
    def alone(self) -> bool:
        """True if the policy learns from a teacher and from no reward."""
        return self.active and self.reward_coef == 0

    @property
    def needs_log_probs(self) -> bool:
        """True if the teacher's log-probs of sampled tokens are part of the advantages."""
        return self.active and self.use == "advantage"
