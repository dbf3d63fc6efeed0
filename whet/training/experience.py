"""Scored samples become what the update needs: rewards per token, log-probs, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from whet.algos import LossInputs, Signals, find_advantage, kl_penalty
from whet.algos.kl import penalise
from whet.algos.resample import resample_rows
from whet.config.schema import Config
from whet.config.schema.algorithm import AlgorithmConfig
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
    weights_BT: Tensor | None = None  # importance weights of the rollout correction
    dependency_BT: Tensor | None = None  # how much each token depends on the images of its prompt
    # what the rollout correction found: of the batch once, or of each mini-batch as it is trained on
    correction_metrics: list[dict[str, float]] = field(default_factory=list)

    def take(self, rows: list[int]) -> Experience:
        """These rows of everything, in this order and as often as they are named."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        taken: dict[str, Any] = {name: value[rows] for name, value in known.items() if isinstance(value, Tensor)}
        return replace(self, samples=[self.samples[row] for row in rows], **taken)

    def sampled_entropy(self) -> float:
        """Mean of −log π over written tokens, under the policy before the update."""
        return float(-(self.old_log_probs_BT * self.mask_BT).sum() / self.mask_BT.sum().clamp(min=1))

    def loss_inputs(self, rows: list[int], log_probs_BT: Tensor) -> LossInputs:
        """These rows as a policy loss sees them, cut to the width of the log-probs and on their device."""
        T, device = log_probs_BT.shape[1], log_probs_BT.device
        old, advantages, mask = (
            on_device(values[rows, :T], device) for values in (self.old_log_probs_BT, self.advantages_BT, self.mask_BT)
        )
        weights = None if self.weights_BT is None else on_device(self.weights_BT[rows, :T], device)
        return LossInputs(log_probs_BT, old, advantages, mask, weights)

    def metrics(self) -> dict[str, float]:
        """What is known of the batch once it was trained on: the mean over what the correction found."""
        names = dict.fromkeys(name for found in self.correction_metrics for name in found)
        columns = {name: [found[name] for found in self.correction_metrics if name in found] for name in names}
        return {name: sum(values) / len(values) for name, values in columns.items()}


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy that the host does not wait for: from pageable memory it would, until the device has caught up."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def needs_reference(config: AlgorithmConfig) -> bool:
    """Whether any term of the objective looks at the frozen reference model."""
    return not config.disable_kl and config.kl_coef > 0


def sampler_log_probs(samples: Sequence[Sample]) -> Tensor:
    """(B, T) of what the engine reported for each token."""
    return pad([s.log_probs for s in samples])


def for_fresh(samples: Sequence[Sample], version: int, values_BT: Tensor, otherwise: Tensor) -> Tensor:
    """`values_BT` for tokens that this version of the policy wrote, `otherwise` for those of earlier versions.

    Old log-probs are those of the policy that wrote a token. The learner's own pass gives them only for fresh tokens.
    """
    fresh_BT = pad([[float(wrote == version) for wrote in sample.versions] for sample in samples])
    return torch.where(fresh_BT.bool(), values_BT, otherwise)


def resampled(experience: Experience, config: Config, step: int) -> tuple[Experience, dict[str, float]]:
    """The experience with its rows drawn anew where `algorithm.use_pf_ppo` says so, tokens and advantages together."""
    if not config.algorithm.use_pf_ppo:
        return experience, {}
    scores_B = torch.tensor([sample.reward for sample in experience.samples])
    rows = resample_rows(scores_B, config.algorithm.pf_ppo, config.worker.rollout.seed, step)
    return experience.take(rows), {"batch/resampled_distinct": len(set(rows)) / len(rows)}


def make_experience(
    samples: Sequence[Sample],
    old_log_probs_BT: Tensor,
    ref_log_probs_BT: Tensor | None,
    config: AlgorithmConfig,
    computed: dict[str, Tensor] | None = None,
    kl_coef: float | None = None,
) -> tuple[Experience, dict[str, float]]:
    """Place rewards on tokens, take off the KL penalty where it belongs to the reward, and compare within groups."""
    mask_BT = pad([s.mask for s in samples])
    rewards_BT = pad([s.rewards for s in samples])
    metrics: dict[str, float] = {}
    computed = dict(computed or {})
    kl_BT, dependency_BT = computed.pop("full_kl", None), computed.pop("dependency", None)
    if ref_log_probs_BT is not None and not config.use_kl_loss:
        kl_BT = kl_penalty(old_log_probs_BT, ref_log_probs_BT, config.kl_penalty)
    if kl_BT is not None:
        rewards_BT, kl = penalise(rewards_BT, kl_BT, mask_BT, config.kl_coef if kl_coef is None else kl_coef)
        metrics = {"actor/reward_kl": float(kl)}
    weights_BT, found = None, list[dict[str, float]]()
    correction = config.rollout_correction
    if correction.active and not correction.bypass_mode:
        from whet.algos.correction import correct

        corrected = correct(old_log_probs_BT, sampler_log_probs(samples), mask_BT, correction, config.match)
        mask_BT, weights_BT, found = corrected.mask_BT, corrected.weights_BT, [corrected.metrics]
    signals = Signals(
        mask_BT=mask_BT,
        rewards_BT=rewards_BT,
        groups_B=_groups(samples),
        old_log_probs_BT=old_log_probs_BT,
        scores=_scores(samples),
        ref_log_probs_BT=ref_log_probs_BT,
        weights_BT=weights_BT,
        **{_FIELDS[name]: values for name, values in computed.items()},
    )
    advantages_BT, returns_BT = find_advantage(config.adv_estimator)(signals, config)
    for sample, row, length in zip(samples, advantages_BT, mask_BT.sum(dim=1)):
        sample.advantage = float(row.sum() / length.clamp(min=1))
    experience = Experience(
        samples,
        mask_BT,
        old_log_probs_BT,
        ref_log_probs_BT,
        advantages_BT,
        returns_BT,
        signals.values_BT,
        weights_BT,
        dependency_BT,
        found,
    )
    return experience, metrics


def _scores(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """(B,) of every key that the reward function gave; 0 for a sample without it."""
    names = dict.fromkeys(name for sample in samples for name in sample.scores)
    return {name: torch.tensor([sample.scores.get(name, 0.0) for sample in samples]) for name in names}


def _groups(samples: Sequence[Sample]) -> Tensor:
    """(B,) numbers from 0, the same for samples of the same group; a row of the data drawn twice forms two groups."""
    assert all(sample.group is not None for sample in samples), "samples to compare have a group"
    numbers: dict[int | None, int] = {}
    return torch.tensor([numbers.setdefault(s.group, len(numbers)) for s in samples])
