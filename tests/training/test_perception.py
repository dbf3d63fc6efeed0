"""How much tokens depend on images: against transformers on masked images, and what is drawn for whom."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from model.tiny_vision import WORDS, their_log_probs, theirs, tiny_vision, vision_prompt
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, Qwen2VLImageProcessorPil

from whet.algos.shaping import token_dependency
from whet.config import load_config
from whet.config.schema.actor import ActorConfig
from whet.errors import UserError
from whet.learn.learner import LocalLearner
from whet.learn.packing import pad
from whet.learn.partition import Budget
from whet.rollout.spec import engine_can
from whet.tracking.console import Console
from whet.training.measure import StepClock
from whet.training.perception import check_sees_images, mask_samples, visual_dependency
from whet.types import Media, Sample

VERSION = 4
SIDE = 28  # pixels of one token


class Pixels:
    """Images by the processor of Qwen2-VL; what whet's own processors do with `pixels`."""

    def __init__(self) -> None:
        self._images = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, temporal_patch_size=2)
        self.seen = 0

    def pixels(self, images: list, videos: list) -> dict[str, Tensor]:
        self.seen += len(images)
        made = self._images(images=list(images), do_resize=False, return_tensors="pt")
        return {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}


def samples_of(model: PreTrainedModel) -> list[Sample]:
    """Three responses each to a prompt with two images, one of text, one with one image."""
    rng, samples, draw = random.Random(1), list[Sample](), np.random.default_rng(0)
    for seed, sizes in ((1, [(2, 3), (2, 2)]), (2, []), (3, [(3, 2)])):
        prompt = vision_prompt(model.config, images=[(1, 2 * h, 2 * w) for w, h in sizes], seed=seed)
        if sizes:
            shapes = [(h * SIDE, w * SIDE, 3) for w, h in sizes]
            images = [Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]
            prompt = replace(prompt, media=Media(images, [], Pixels().pixels(images, [])))
        for index in range(3):
            ids = [rng.randrange(WORDS) for _ in range(rng.randint(1, 6))]
            samples.append(Sample.written(prompt, ids, [], "stop", index=index, group=seed, version=VERSION))
    return samples


@pytest.fixture(scope="module")
def models() -> tuple[PreTrainedModel, PreTrainedModel]:
    """whet's way to run it, and transformers'."""
    return tiny_vision("qwen2_5_vl"), tiny_vision("qwen2_5_vl", ours=False)


def inputs_of(model: PreTrainedModel, *keys: str) -> SimpleNamespace:
    config = load_config(["algorithm.use_vppo_on_perception=true", "worker.actor.recompute_old_log_probs=false", *keys])
    learner = LocalLearner(model, ActorConfig(), config.worker.rollout.temperature, 1, Budget(None, None))
    models = SimpleNamespace(learner=learner, engine=SimpleNamespace(version=VERSION, capabilities=engine_can(config)))
    return SimpleNamespace(config=config, models=models, processor=Pixels())


def measure(inputs: SimpleNamespace, samples: list[Sample], old: Tensor, step: int = 5) -> Tensor:
    return visual_dependency(inputs, samples, old, step, StepClock(Console()))


def log_probs_of(plain: PreTrainedModel, samples: list[Sample]) -> Tensor:
    with torch.no_grad():
        return pad([their_log_probs(plain, sample).tolist() for sample in samples])


def twins_of(inputs: SimpleNamespace, samples: list[Sample], step: int = 5) -> list[Sample]:
    seen = [s for s in samples if s.prompt.media is not None]
    config = inputs.config
    twins = iter(mask_samples(seen, inputs.processor, config.algorithm, config.worker.rollout.seed, step))
    return [sample if sample.prompt.media is None else next(twins) for sample in samples]


def test_dependency_is_that_of_masked_images_and_0_for_text(models: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    ours, plain = models
    samples, inputs = samples_of(ours), inputs_of(ours)
    old = log_probs_of(plain, samples)
    expected = token_dependency(log_probs_of(plain, twins_of(inputs, samples)), old)
    found = measure(inputs, samples, old)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert not found[3:6].any()
    assert (found[[0, 6]] > 1e-4).any(dim=1).all()  # where there are images, they show


def test_log_probs_of_another_policy_are_not_compared_with(models: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    ours, plain = models
    samples = samples_of(ours)
    right = log_probs_of(plain, samples)
    wrong = right - torch.rand(right.shape, generator=torch.Generator().manual_seed(0)) * (right != 0)
    expected = measure(inputs_of(ours), samples, right)
    torch.testing.assert_close(measure(inputs_of(ours, "worker.rollout.name=vllm"), samples, wrong), expected)
    carried = [
        replace(s, segments=[replace(s.segments[0], version=VERSION - 1)]) if i in (0, 7) else s
        for i, s in enumerate(samples)
    ]
    mixed = right.clone()
    mixed[[0, 7]] = wrong[[0, 7]]
    torch.testing.assert_close(measure(inputs_of(ours), carried, mixed), expected, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(measure(inputs_of(ours), samples, wrong), expected, atol=1e-2)


def test_the_exact_kl(models: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    ours, plain = models
    samples, inputs = samples_of(ours), inputs_of(ours, "algorithm.perception_kl=full")
    found = measure(inputs, samples, torch.zeros(9, max(len(s.ids) for s in samples)))  # no log-prob is looked at
    for row, sample, twin in zip(found, samples, twins_of(inputs, samples), strict=True):
        with torch.no_grad():
            log_p, log_q = (theirs(plain, each.prompt, each.ids).log_softmax(dim=-1) for each in (sample, twin))
        expected = (log_p.exp() * (log_p - log_q)).sum(dim=-1)
        torch.testing.assert_close(row[: len(sample.ids)], expected, rtol=1e-3, atol=1e-5)


def test_masks_are_drawn_for_prompts_and_for_samples_as_in_vppo(
    models: tuple[PreTrainedModel, PreTrainedModel],
) -> None:
    ours, _ = models
    samples = samples_of(ours)
    for match, different in (("whet", 2), ("vppo", 6)):
        inputs = inputs_of(ours, f"algorithm.match={match}")
        twins = twins_of(inputs, samples)
        assert len({id(t.prompt) for t in twins if t.prompt.media is not None}) == different
        assert inputs.processor.seen == (9 if match == "vppo" else 3)  # images
        pixels = {t.prompt.media.inputs["pixel_values"].numpy().tobytes() for t in twins if t.prompt.media is not None}
        assert len(pixels) == different
        again, later = (twins_of(inputs_of(ours, f"algorithm.match={match}"), samples, step) for step in (5, 6))
        for one, same, other in zip(twins, again, later):
            if one.prompt.media is not None:
                values = [each.prompt.media.inputs["pixel_values"] for each in (one, same, other)]
                assert torch.equal(values[0], values[1])
                assert not torch.equal(values[0], values[2])
            assert one.ids == other.ids
            assert one.prompt.ids == other.prompt.ids


def test_a_model_of_text_is_refused() -> None:
    for name in ("use_vppo_on_perception", "use_advantage_shaping"):
        config = load_config([f"algorithm.{name}=true"]).algorithm
        with pytest.raises(UserError, match=f"algorithm.{name}=true: the model .* reads text only"):
            check_sees_images(config, None)
        check_sees_images(config, Pixels())
    check_sees_images(load_config(["algorithm.use_vppo_on_entropy=true"]).algorithm, None)
