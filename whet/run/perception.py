"""How much every token of a response depends on the images of its prompt: a second look at them, masked (VPPO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whet.algos.quirks import quirks
from whet.algos.shaping import bounded, token_dependency
from whet.config.algorithm import AlgorithmConfig
from whet.data.masking import masked, seed_of
from whet.run.measure import StepClock
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.run.rooms import Rooms


def needs_dependency(config: AlgorithmConfig) -> bool:
    """Whether the objective looks at how much tokens depend on images."""
    return config.use_vppo_on_perception or config.use_advantage_shaping


def is_visual(prompt: Prompt) -> bool:
    """Whether there is anything to see in a prompt."""
    return prompt.media is not None and bool(prompt.media.images or prompt.media.videos)


def visual_dependency(
    rooms: Rooms, samples: Sequence[Sample], old_log_probs_BT: Tensor, step: int, clock: StepClock
) -> Tensor:
    """(B, T): the dependency S of each token, 0 for prompts of text alone, which cost no pass."""
    algorithm, found_BT = rooms.config.algorithm, torch.zeros_like(old_log_probs_BT)
    rows = [row for row, sample in enumerate(samples) if is_visual(sample.prompt)]
    if not rows:
        return found_BT
    chosen = [samples[row] for row in rows]
    with clock.stage("mask_images", len(rows)):
        twins = mask_samples(rooms, chosen, step)
    with clock.stage("masked_log_probs"):
        if algorithm.perception_kl == "full":
            dependency = bounded(rooms.learner.masked_kl(chosen, twins))
        else:
            masked_BT = rooms.learner.log_probs(twins)
            T = masked_BT.shape[1]
            plain_BT = old_log_probs_BT[rows, :T].clone()
            moved = [i for i, sample in enumerate(chosen) if not _is_of_these_weights(rooms, sample)]
            if moved:  # the difference would be that of two policies
                own_BT = rooms.learner.log_probs([chosen[i] for i in moved])
                plain_BT[moved, : own_BT.shape[1]] = own_BT
            dependency = token_dependency(masked_BT, plain_BT)
    found_BT[rows, : dependency.shape[1]] = dependency
    return found_BT


def mask_samples(rooms: Rooms, samples: Sequence[Sample], step: int) -> list[Sample]:
    """The same responses to the same prompts with masked images, which the samples of a prompt share."""
    algorithm, known, twins = rooms.config.algorithm, dict[object, Prompt](), list[Sample]()
    assert rooms.processor is not None, "prompts have images only where there is one"
    slips = quirks(algorithm.match)
    for sample in samples:
        key: tuple[int, ...] = (id(sample.prompt),)
        parts: list[object] = [rooms.config.worker.rollout.seed, step, sample.prompt.uid]
        if slips.masks_every_sample:
            key, parts = (*key, len(twins)), [*parts, sample.index]
        if key not in known:
            assert sample.prompt.media is not None
            media = masked(
                sample.prompt.media,
                rooms.processor.pixels,
                algorithm.perception_mask,
                algorithm.perception_mask_ratio,
                seed_of(*parts),
                videos=not slips.videos_are_not_masked,
            )
            known[key] = replace(sample.prompt, media=media)
        twins.append(replace(sample, prompt=known[key]))
    return twins


def _is_of_these_weights(rooms: Rooms, sample: Sample) -> bool:
    """Whether a sample's old log-probs are the learner's own, of the weights as they are now."""
    config = rooms.config
    if rooms.recompute_old_log_probs:
        return config.algorithm.rollout_correction.active or sample.version == rooms.engine.version
    return config.worker.rollout.name == "native" and sample.version == rooms.engine.version
