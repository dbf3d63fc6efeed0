"""Rollout correction in bypass mode: each mini-batch is corrected in the loss, by the current policy's ratio."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from whet.algos.correction import correct
from whet.config.schema.algorithm import AlgorithmConfig
from whet.training.experience import Experience


def corrected_mini_batch(
    experience: Experience, rows: list[int], log_probs_BT: Tensor, config: AlgorithmConfig
) -> tuple[Experience, dict[str, float]]:
    """Weight and reject tokens of these rows by the ratio of the current policy to the sampler; return metrics too.

    The clipped loss contains the ratio already and is not weighted once more.
    """
    T = log_probs_BT.shape[1]
    sampler_BT, mask_BT = (values[rows, :T] for values in (experience.old_log_probs_BT, experience.mask_BT))
    correction = config.rollout_correction
    found = correct(log_probs_BT.to(mask_BT.device), sampler_BT, mask_BT, correction, config.match)
    mask_BT = experience.mask_BT.clone()
    mask_BT[rows, :T] = found.mask_BT
    if found.weights_BT is None or correction.loss_type == "ppo_clip":
        return replace(experience, mask_BT=mask_BT), found.metrics
    weights_BT = mask_BT.new_ones(mask_BT.shape)
    weights_BT[rows, :T] = found.weights_BT
    return replace(experience, mask_BT=mask_BT, weights_BT=weights_BT), found.metrics
