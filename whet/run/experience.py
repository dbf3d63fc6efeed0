"""Scored samples become what the update needs: rewards per token, log-probs, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos import LossInputs, Signals, find_advantage
from whet.algos.kl import penalise
from whet.config.algorithm import AlgorithmConfig
from whet.learn.packing import pad
from whet.types import Sample

# What `needs` calls a signal -> the field of Signals that holds it.
_FIELDS = {"values": "values_BT", "sum_pi_squared": "sum_pi_squared_BT", "baselines": "baselines_B"}


@dataclass(slots=True)
class Experience:
    """A batch of B responses, T tokens at most, ready to train on."""

    samples: Sequence[Sample]
    mask_BT: Tensor
    old_log_probs_BT: Tensor
    ref_log_probs_BT: Tensor | None
    advantages_BT: Tensor
    returns_BT: Tensor
    values_BT: Tensor | None = None  # the critic's, where there is one

    def loss_inputs(self, rows: list[int], log_probs_BT: Tensor) -> LossInputs:
        """These rows as a policy loss sees them, cut to the width of the log-probs and on their device."""
        T, device = log_probs_BT.shape[1], log_probs_BT.device
        old, advantages, mask = (
            values[rows, :T].to(device) for values in (self.old_log_probs_BT, self.advantages_BT, self.mask_BT)
        )
        return LossInputs(log_probs_BT, old, advantages, mask)


def needs_reference(config: AlgorithmConfig) -> bool:
    """Whether any term of the objective looks at the frozen reference model."""
    return not config.disable_kl and config.kl_coef > 0


def sampler_log_probs(samples: Sequence[Sample]) -> Tensor:
    """(B, T) of what the engine reported for each token."""
    return pad([s.log_probs for s in samples])


def make_experience(
    samples: Sequence[Sample],
    old_log_probs_BT: Tensor,
    ref_log_probs_BT: Tensor | None,
    config: AlgorithmConfig,
    computed: dict[str, Tensor] | None = None,
) -> tuple[Experience, dict[str, float]]:
    """Place rewards on tokens, take off the KL penalty where it belongs to the reward, and compare within groups."""
    mask_BT = pad([s.mask for s in samples])
    rewards_BT = torch.zeros_like(mask_BT)
    for row, sample in enumerate(samples):
        if sample.ids:
            rewards_BT[row, len(sample.ids) - 1] = sample.reward
    metrics: dict[str, float] = {}
    if ref_log_probs_BT is not None and not config.use_kl_loss:
        rewards_BT, kl = penalise(
            rewards_BT, old_log_probs_BT, ref_log_probs_BT, mask_BT, config.kl_penalty, config.kl_coef
        )
        metrics = {"actor/reward_kl": float(kl), "actor/kl_coef": config.kl_coef}
    signals = Signals(
        mask_BT=mask_BT,
        rewards_BT=rewards_BT,
        groups_B=_groups(samples),
        old_log_probs_BT=old_log_probs_BT,
        scores=_scores(samples),
        ref_log_probs_BT=ref_log_probs_BT,
        **{_FIELDS[name]: values for name, values in (computed or {}).items()},
    )
    advantages_BT, returns_BT = find_advantage(config.adv_estimator)(signals, config)
    for sample, row, length in zip(samples, advantages_BT, mask_BT.sum(dim=1)):
        sample.advantage = float(row.sum() / length.clamp(min=1))
    experience = Experience(
        samples, mask_BT, old_log_probs_BT, ref_log_probs_BT, advantages_BT, returns_BT, signals.values_BT
    )
    return experience, metrics


def _scores(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """(B,) of every key that the reward function gave; 0 for a sample without it."""
    names = dict.fromkeys(name for sample in samples for name in sample.scores)
    return {name: torch.tensor([sample.scores.get(name, 0.0) for sample in samples]) for name in names}


def _groups(samples: Sequence[Sample]) -> Tensor:
    """Samples of the same prompt object form a group; the same row drawn twice forms two."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(id(s.prompt), len(numbers)) for s in samples])
