"""Where the rollout correction enters a step: before advantages, or in the loss of each mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from whet.config.schema import Config
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.correction import SECTION
from whet.training.experience import Experience

if TYPE_CHECKING:
    from whet.algos.correction import Correction

# The losses of bypass mode, by the names of algorithm.rollout_correction.loss_type.
_BYPASS_LOSSES = {"ppo_clip": "default", "reinforce": "gpg"}


def policy_loss_name(config: Config) -> str:
    """The loss that a run trains with: `worker.actor.loss_type`, or that of bypass mode."""
    correction = config.algorithm.rollout_correction
    return _BYPASS_LOSSES[correction.loss_type] if correction.bypass_mode else config.worker.actor.loss_type


def corrects_in_loss(config: AlgorithmConfig) -> bool:
    """Whether each mini-batch needs a pass of the current policy to be compared with the sampler."""
    correction = config.rollout_correction
    return correction.bypass_mode and bool(correction.rollout_is or correction.rollout_rs)


def corrected_mini_batch(
    experience: Experience, rows: list[int], log_probs_BT: Tensor, config: AlgorithmConfig
) -> Experience:
    """The experience with these rows weighed and rejected by the ratio of the current policy to the sampler.

    The clipped loss has the ratio in it already and is not weighed once more.
    """
    found = _correct(experience, rows, log_probs_BT, config)
    experience.correction_metrics.append(found.metrics)
    T = log_probs_BT.shape[1]
    mask_BT = experience.mask_BT.clone()
    mask_BT[rows, :T] = found.mask_BT
    if found.weights_BT is None or config.rollout_correction.loss_type == "ppo_clip":
        return replace(experience, mask_BT=mask_BT)
    weights_BT = mask_BT.new_ones(mask_BT.shape)
    weights_BT[rows, :T] = found.weights_BT
    return replace(experience, mask_BT=mask_BT, weights_BT=weights_BT)


def warn_of_skips(metrics: dict[str, float], step: int, warn: Callable[[str], None]) -> None:
    """Say so where nothing was left of a mini-batch to train on."""
    skipped = metrics.get("actor/update_skipped", 0.0)
    if skipped:
        warn(
            f"step {step}: {skipped:.0f} of its updates skipped, because nothing was left to train on; where "
            f"rollout_corr/rollout_rs_masked_fraction is high, loosen {SECTION}.rollout_rs_threshold"
        )


def _correct(experience: Experience, rows: list[int], log_probs_BT: Tensor, config: AlgorithmConfig) -> Correction:
    from whet.algos.correction import correct

    T = log_probs_BT.shape[1]
    sampler_BT, mask_BT = (values[rows, :T] for values in (experience.old_log_probs_BT, experience.mask_BT))
    return correct(log_probs_BT.to(mask_BT.device), sampler_BT, mask_BT, config.rollout_correction, config.match)
