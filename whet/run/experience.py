"""Scored samples become what the update needs: rewards per token, log-probs, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos import Signals, find_advantage
from whet.algos.kl import penalise
from whet.config.algorithm import AlgorithmConfig
from whet.learn.packing import pad
from whet.types import Sample


@dataclass(slots=True)
class Experience:
    """A batch of B responses, T tokens at most, ready to train on."""

    samples: Sequence[Sample]
    mask_BT: Tensor
    old_log_probs_BT: Tensor
    ref_log_probs_BT: Tensor | None
    advantages_BT: Tensor


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
) -> tuple[Experience, dict[str, float]]:
    """Place rewards on tokens, take off the KL penalty where it belongs to the reward, and compare within groups."""
    mask_BT = pad([s.mask for s in samples])
    rewards_BT = torch.zeros_like(mask_BT)
    for row, sample in enumerate(samples):
        rewards_BT[row, len(sample.ids) - 1] = sample.reward
    metrics: dict[str, float] = {}
    if ref_log_probs_BT is not None and not config.use_kl_loss:
        rewards_BT, kl = penalise(
            rewards_BT, old_log_probs_BT, ref_log_probs_BT, mask_BT, config.kl_penalty, config.kl_coef
        )
        metrics = {"actor/reward_kl": float(kl), "actor/kl_coef": config.kl_coef}
    signals = Signals(mask_BT, rewards_BT, _groups(samples), old_log_probs_BT, ref_log_probs_BT)
    advantages_BT, _ = find_advantage(config.adv_estimator)(signals, config)
    for sample, row, length in zip(samples, advantages_BT, mask_BT.sum(dim=1)):
        sample.advantage = float(row.sum() / length.clamp(min=1))
    experience = Experience(samples, mask_BT, old_log_probs_BT, ref_log_probs_BT, advantages_BT)
    return experience, metrics


def _groups(samples: Sequence[Sample]) -> Tensor:
    """Samples of the same prompt object form a group; the same row drawn twice forms two."""
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(id(s.prompt), len(numbers)) for s in samples])
