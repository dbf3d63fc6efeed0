"""How distributions move when images are masked: against transformers, one sample at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from model.tiny_vision import KINDS, mixed_samples, theirs, tiny_vision
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.types import Media, Prompt, Sample

TEMPERATURE = 0.8


def darken(prompt: Prompt, strength: float) -> Prompt:
    """The prompt with other pixels in the same grids."""
    assert prompt.media is not None
    pixels = {name: value * strength for name, value in prompt.media.inputs.items() if name.startswith("pixel")}
    return replace(prompt, media=Media(inputs=prompt.media.inputs | pixels))


def twins_of(samples: list[Sample], every_sample: bool) -> list[Sample]:
    """The same responses to darker images, shared by a prompt's samples or each with its own."""
    known: dict[int, Prompt] = {}
    twins = []
    for i, sample in enumerate(samples):
        key = i if every_sample else id(sample.prompt)
        if key not in known:
            known[key] = darken(sample.prompt, 0.5 - 0.1 * (i % 4) if every_sample else 0.5)
        twins.append(replace(sample, prompt=known[key]))
    return twins


def learner_of(model: PreTrainedModel, size: int, tokens: int | None, share: bool = True) -> LocalLearner:
    config = ActorConfig(share_prefix=share, micro_batch_size_per_device_for_experience=size)
    return LocalLearner(model, config, TEMPERATURE, 1, Budget(tokens, tokens))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every_sample", [False, True])
def test_exact_kl_and_log_probs_of_masked_images(kind: str, every_sample: bool) -> None:
    samples = [s for s in mixed_samples(tiny_vision(kind).config, n=3) if s.prompt.media is not None]
    twins, plain = twins_of(samples, every_sample), tiny_vision(kind, ours=False)
    learner = learner_of(tiny_vision(kind), 100, None)
    found, log_probs = learner.masked_kl(samples, twins), learner.log_probs(twins)
    for row, masked_row, sample, twin in zip(found, log_probs, samples, twins, strict=True):
        with torch.no_grad():
            log_p, log_q = (
                torch.log_softmax(theirs(plain, each.prompt, each.ids) / TEMPERATURE, dim=-1) for each in (sample, twin)
            )
        R = len(sample.ids)
        torch.testing.assert_close(row[:R], (log_p.exp() * (log_p - log_q)).sum(dim=-1), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(masked_row[:R], log_q[torch.arange(R), sample.ids], rtol=1e-4, atol=1e-5)
        assert not row[R:].any()
    assert float(found.max()) > 0.01  # the images do show


@pytest.mark.parametrize(("size", "tokens", "share"), [(1, None, True), (5, None, False), (1, 60, True)])
def test_micro_batches_and_sharing_change_nothing(size: int, tokens: int | None, share: bool) -> None:
    model = tiny_vision("qwen2_5_vl")
    samples = [s for s in mixed_samples(model.config, n=3) if s.prompt.media is not None]
    twins = twins_of(samples, every_sample=False)
    whole = learner_of(model, 100, None).masked_kl(samples, twins)
    torch.testing.assert_close(
        learner_of(model, size, tokens, share).masked_kl(samples, twins), whole, rtol=1e-3, atol=1e-5
    )


def test_samples_of_a_prompt_share_its_masked_images() -> None:
    model = tiny_vision("qwen2_5_vl")
    samples = [s for s in mixed_samples(model.config, n=3) if s.prompt.media is not None]
    seen: list[int] = []
    model.base_model.visual.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(args[0])), with_kwargs=True
    )
    patches = {
        each: sum(
            len(value)
            for prompt in {id(t.prompt): t.prompt for t in twins_of(samples, each)}.values()
            for name, value in prompt.media.inputs.items()
            if name.startswith("pixel")
        )
        for each in (False, True)
    }
    for every_sample in (False, True):
        seen.clear()
        learner_of(model, 100, None).log_probs(twins_of(samples, every_sample))
        assert sum(seen) == patches[every_sample]
    assert patches[True] == 3 * patches[False]
