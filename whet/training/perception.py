"""Visual dependency (VPPO): how much each response token depends on the prompt's images, by a pass with masked ones."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import Tensor

from whet.algos.quirks import quirks
from whet.algos.shaping import bounded, token_dependency
from whet.config.schema.algorithm import AlgorithmConfig
from whet.data.masking import masked, seed_of
from whet.errors import UserError
from whet.model.processor import Processor
from whet.training.measure import StepClock
from whet.training.signals import SignalInputs, recomputes_old_log_probs
from whet.types import Prompt, Sample


def check_sees_images(config: AlgorithmConfig, processor: Processor | None) -> None:
    """Raise a `UserError` if dependency on images is configured for a text model."""
    if config.needs_dependency and processor is None:
        key = "use_vppo_on_perception" if config.use_vppo_on_perception else "use_advantage_shaping"
        raise UserError(
            f"algorithm.{key}=true: the model of worker.actor.model.model_path reads text only, or came without a "
            "processor (preprocessor_config.json), so nothing depends on images; set it to false"
        )


def is_visual(prompt: Prompt) -> bool:
    """Return True if a prompt has images or videos."""
    return prompt.media is not None and bool(prompt.media.images or prompt.media.videos)


def visual_dependency(
    inputs: SignalInputs, samples: Sequence[Sample], old_log_probs_BT: Tensor, step: int, clock: StepClock
) -> Tensor:
    """Return (B, T): the dependency S of each token, 0 for text-only prompts, which need no pass."""
    algorithm, found_BT = inputs.config.algorithm, torch.zeros_like(old_log_probs_BT)
    rows = [row for row, sample in enumerate(samples) if is_visual(sample.prompt)]
    if not rows:
        return found_BT
    chosen = [samples[row] for row in rows]
    with clock.stage("mask_images", len(rows)):
        assert inputs.processor is not None, "checked by check_sees_images"
        twins = mask_samples(chosen, inputs.processor, algorithm, inputs.config.worker.rollout.seed, step)
    with clock.stage("masked_log_probs"):
        if algorithm.perception_kl == "full":
            dependency = bounded(inputs.models.learner.masked_kl(chosen, twins))
        else:
            masked_BT = inputs.models.learner.log_probs(twins)
            T = masked_BT.shape[1]
            plain_BT = old_log_probs_BT[rows, :T].clone()
            moved = [i for i, sample in enumerate(chosen) if not _is_of_these_weights(inputs, sample)]
            if moved:  # the difference would be that of two policies
                own_BT = inputs.models.learner.log_probs([chosen[i] for i in moved])
                plain_BT[moved, : own_BT.shape[1]] = own_BT
            dependency = token_dependency(masked_BT, plain_BT)
    found_BT[rows, : dependency.shape[1]] = dependency
    return found_BT


def mask_samples(
    samples: Sequence[Sample], processor: Processor, algorithm: AlgorithmConfig, seed: int, step: int
) -> list[Sample]:
    """Return the same responses to the same prompts with masked images; samples of a prompt share one mask."""
    slips = quirks(algorithm.match)
    keys = [(s.group, row if slips.masks_every_sample else 0) for row, s in enumerate(samples)]
    first = dict(reversed(list(zip(keys, samples))))

    def mask(sample: Sample) -> Prompt:
        drawn = seed_of(seed, step, sample.prompt.uid, *([sample.index] if slips.masks_every_sample else []))
        kind, ratio = algorithm.perception_mask, algorithm.perception_mask_ratio
        assert sample.prompt.media is not None, "only prompts with images are masked"
        media = masked(sample.prompt.media, processor.pixels, kind, ratio, drawn, not slips.videos_are_not_masked)
        return replace(sample.prompt, media=media)

    with ThreadPoolExecutor() as pool:  # most of the work releases the interpreter's lock
        prompts = dict(zip(first, pool.map(mask, first.values())))
    return [replace(sample, prompt=prompts[key]) for key, sample in zip(keys, samples)]


def _is_of_these_weights(inputs: SignalInputs, sample: Sample) -> bool:
    """Return True if a sample's old log-probs are the learner's, under the current weights."""
    config = inputs.config
    if recomputes_old_log_probs(config, inputs.models.engine):
        return config.algorithm.rollout_correction.active or sample.version == inputs.models.engine.version
    return inputs.models.engine.capabilities.exact_log_probs and sample.version == inputs.models.engine.version
