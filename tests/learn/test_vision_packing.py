"""Packed rows with images and videos give the log-probs and gradients of one sample at a time by transformers."""

from __future__ import annotations

import pytest
import torch
from model.tiny_vision import KINDS, mixed_samples, their_log_probs, tiny_vision, vision_prompt
from torch import Tensor
from transformers import PreTrainedModel

from whet.learn.partition import micro_batches
from whet.learn.scoring import score
from whet.model.media import join_media
from whet.types import Prompt, Sample, Segment

TEMPERATURE = 0.8


def _weights(samples: list[Sample]) -> list[Tensor]:
    return [torch.sin(torch.arange(len(s.ids)) + i) for i, s in enumerate(samples)]


def _gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _ours(
    model: PreTrainedModel, samples: list[Sample], share: bool, tokens: int | None, size: int = 100
) -> tuple[list[Tensor], dict[str, Tensor]]:
    found: list[Tensor] = [torch.zeros(0)] * len(samples)
    weights = _weights(samples)
    model.zero_grad()
    for rows in micro_batches(samples, share, tokens, size):
        log_probs = score(model, [samples[i] for i in rows], TEMPERATURE, share).log_probs_BT
        for row, i in zip(log_probs, rows):
            found[i] = row[: len(samples[i].ids)].detach()
        sum((row[: len(samples[i].ids)] * weights[i]).sum() for row, i in zip(log_probs, rows)).backward()
    return found, _gradients(model)


def _theirs(model: PreTrainedModel, samples: list[Sample]) -> tuple[list[Tensor], dict[str, Tensor]]:
    found = []
    model.zero_grad()
    for sample, weight in zip(samples, _weights(samples)):
        log_probs = their_log_probs(model, sample, TEMPERATURE)
        (log_probs * weight).sum().backward()
        found.append(log_probs.detach())
    return found, _gradients(model)


def _assert_same(ours: tuple[list[Tensor], dict[str, Tensor]], theirs: tuple[list[Tensor], dict[str, Tensor]]) -> None:
    for mine, other in zip(ours[0], theirs[0], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert ours[1].keys() == theirs[1].keys()
    assert any("visual" in name for name in ours[1])
    for name, grad in theirs[1].items():
        torch.testing.assert_close(ours[1][name], grad, rtol=1e-3, atol=1e-4 * float(grad.abs().max() + 1e-3), msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [True, False])
def test_packed_rows_equal_one_sample_at_a_time(kind: str, share: bool) -> None:
    ours, plain = tiny_vision(kind), tiny_vision(kind, ours=False)
    samples = mixed_samples(ours.config)
    _assert_same(_ours(ours, samples, share, None), _theirs(plain, samples))


@pytest.mark.parametrize("kind", KINDS)
def test_cutting_into_micro_batches_changes_nothing(kind: str) -> None:
    model = tiny_vision(kind)
    samples = mixed_samples(model.config)
    whole = _ours(model, samples, True, None)
    _assert_same(_ours(model, samples, True, 40), whole)
    _assert_same(_ours(model, samples, True, None, size=1), whole)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_images_of_later_turns(kind: str, share: bool) -> None:
    model, plain = tiny_vision(kind), tiny_vision(kind, ours=False)
    first, shown = (vision_prompt(model.config, images=[size], seed=s) for size, s in (((1, 4, 6), 2), ((1, 2, 4), 7)))
    words = Segment([3, 4, 5], log_probs=[-1.0] * 3)
    looked = Segment(shown.ids, by_model=False, media=shown.media)
    answers = [[6, 7, 8, 9], [9, 2]]
    samples = [
        Sample(first, [words, looked, Segment(ids, log_probs=[-1.0] * len(ids))], "stop", index=i)
        for i, ids in enumerate(answers)
    ]
    scored = score(model, samples, TEMPERATURE, share).log_probs_BT
    media = join_media([first.media, shown.media])
    for row, ids in enumerate(answers):
        # The same tokens by transformers, with everything before the last turn in the prompt.
        prompt = Prompt("one turn", first.ids + words.ids + shown.ids, "", media=media)
        alone = their_log_probs(plain, Sample.written(prompt, ids, [-1.0] * len(ids), "stop"), TEMPERATURE)
        begin = len(words.ids) + len(shown.ids)
        torch.testing.assert_close(scored[row, begin : begin + len(ids)], alone, atol=1e-5, rtol=1e-4)
