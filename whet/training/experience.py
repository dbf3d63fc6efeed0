"""Experience: scored samples with what the update needs of them: rewards per token, log-probs, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from whet.algos import LossInputs, Signals, find_advantage
from whet.config.schema import Config
from whet.config.schema.algorithm import AlgorithmConfig
from whet.learn.packing import pad
from whet.types import Sample

# Name of a signal in `needs` -> the field of Signals that holds it.
_FIELDS = {
    "values": "values_BT",
    "sum_pi_squared": "sum_pi_squared_BT",
    "baselines": "baselines_B",
    "states": "states_BT",
    "process_rewards": "process_rewards_BT",
}


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
    teacher_samples: Sequence[Sample] | None = None  # as the teacher reads them; None: as the policy does
    groups_B: Tensor | None = None  # rows with the same number answer the same prompt
    observed_BT: Tensor | None = None  # 1 where a tool or an environment wrote the token, where that is learned

    def take(self, rows: list[int]) -> Experience:
        """Return these rows, in this order; a row may occur several times."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        taken: dict[str, Any] = {name: value[rows] for name, value in known.items() if isinstance(value, Tensor)}
        if self.teacher_samples is not None:
            taken["teacher_samples"] = [self.teacher_samples[row] for row in rows]
        return replace(self, samples=[self.samples[row] for row in rows], **taken)

    def sampled_entropy(self) -> float:
        """Return the mean of −log π over tokens under the mask, under the policy before the update."""
        return float(-(self.old_log_probs_BT * self.mask_BT).sum() / self.mask_BT.sum().clamp(min=1))

    def loss_inputs(self, rows: list[int], log_probs_BT: Tensor) -> LossInputs:
        """Return these rows as a policy loss takes them, cut to the width T of the log-probs and on their device."""
        T, device = log_probs_BT.shape[1], log_probs_BT.device
        old, advantages, mask = (
            on_device(values[rows, :T], device) for values in (self.old_log_probs_BT, self.advantages_BT, self.mask_BT)
        )
        weights = None if self.weights_BT is None else on_device(self.weights_BT[rows, :T], device)
        groups = None if self.groups_B is None else on_device(self.groups_B[rows], device)
        return LossInputs(log_probs_BT, old, advantages, mask, weights, groups_B=groups)


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy to a device without waiting; from pageable memory the host would wait until the device has caught up."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def needs_reference(config: AlgorithmConfig) -> bool:
    """Return True if a term of the objective, or the advantage, needs the frozen reference model."""
    return penalises_kl(config) or config.compares_with_reference


def penalises_kl(config: AlgorithmConfig) -> bool:
    """Return True if the KL divergence from the reference is part of the reward or of the loss."""
    return not config.disable_kl and config.kl_coef > 0


def sampler_log_probs(samples: Sequence[Sample]) -> Tensor:
    """Return the log-probs (B, T) that the engine reported."""
    return pad([s.log_probs for s in samples])


def for_fresh(samples: Sequence[Sample], version: int, values_BT: Tensor, otherwise: Tensor) -> Tensor:
    """Return `values_BT` for tokens that this version of the policy wrote, `otherwise` for those of earlier versions.

    Old log-probs are those of the policy that wrote a token. The learner's pass gives them for fresh tokens only.
    """
    fresh_BT = pad([[float(wrote == version) for wrote in sample.versions] for sample in samples])
    return torch.where(fresh_BT.bool(), values_BT, otherwise)


def with_log_probs(sample: Sample, log_probs: list[float], version: int | None = None) -> Sample:
    """Return a copy with other log-probs of what the policy wrote, or of what this version of the policy wrote."""
    segments, start = [], 0
    for segment in sample.segments:
        stop = start + len(segment.ids)
        if segment.by_model and version in (None, segment.version):
            segment = replace(segment, log_probs=log_probs[start:stop])
        segments.append(segment)
        start = stop
    return replace(sample, segments=segments)


def resampled(experience: Experience, config: Config, step: int) -> tuple[Experience, dict[str, float]]:
    """Resample the rows of an experience if `algorithm.use_pf_ppo` is set; return it with metrics."""
    if not config.algorithm.use_pf_ppo:
        return experience, {}
    scores_B = torch.tensor([sample.reward for sample in experience.samples])
    from whet.algos.resample import resample_rows

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
    """Place rewards on tokens, subtract the KL penalty if it is part of the reward, and compute advantages."""
    mask_BT = pad([s.mask for s in samples])
    rewards_BT = pad([s.rewards for s in samples])
    metrics: dict[str, float] = {}
    computed = dict(computed or {})
    kl_BT, dependency_BT = computed.pop("full_kl", None), computed.pop("dependency", None)
    teacher_BT = computed.pop("teacher_log_probs", None)
    if ref_log_probs_BT is not None and not config.use_kl_loss and penalises_kl(config):
        from whet.algos.kl import kl_penalty

        kl_BT = kl_penalty(old_log_probs_BT, ref_log_probs_BT, config.kl_penalty)
    if kl_BT is not None:
        from whet.algos.kl import penalise

        rewards_BT, kl = penalise(rewards_BT, kl_BT, mask_BT, config.kl_coef if kl_coef is None else kl_coef)
        metrics = {"actor/reward_kl": float(kl)}
    mask_BT, weights_BT, corrected = _corrected(samples, old_log_probs_BT, mask_BT, config)
    metrics |= corrected
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
    if teacher_BT is not None:
        from whet.algos.distill import teacher_advantages

        taught = teacher_advantages(advantages_BT, old_log_probs_BT, teacher_BT, mask_BT, config.distill)
        advantages_BT, metrics["actor/teacher_kl"] = taught
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
        groups_B=signals.groups_B,
        observed_BT=_observed(samples) if config.observation_coef else None,
    )
    return experience, metrics


def _corrected(
    samples: Sequence[Sample], old_log_probs_BT: Tensor, mask_BT: Tensor, config: AlgorithmConfig
) -> tuple[Tensor, Tensor | None, dict[str, float]]:
    """Return mask, weights and metrics of a correction before the update; the mask as it is without one."""
    correction = config.rollout_correction
    if not correction.active or correction.bypass_mode:
        return mask_BT, None, {}
    from whet.algos.correction import correct

    found = correct(old_log_probs_BT, sampler_log_probs(samples), mask_BT, correction, config.match)
    return found.mask_BT, found.weights_BT, found.metrics


def _scores(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Return (B,) for every key that the reward function gave; 0 for a sample without it."""
    names = dict.fromkeys(name for sample in samples for name in sample.scores)
    return {name: torch.tensor([sample.score(name) or 0.0 for sample in samples]) for name in names}


def _observed(samples: Sequence[Sample]) -> Tensor:
    """Return (B, T): 1 where a tool or an environment wrote the token, and not where a conversation begins anew."""
    return pad([[int(not s.by_model and not s.restart) for s in sample.segments for _ in s.ids] for sample in samples])


def _groups(samples: Sequence[Sample]) -> Tensor:
    """Return (B,) group numbers from 0; a row of the data that was drawn twice forms two groups."""
    assert all(sample.group is not None for sample in samples), "samples to compare have a group"
    numbers: dict[int | None, int] = {}
    return torch.tensor([numbers.setdefault(s.group, len(numbers)) for s in samples])
