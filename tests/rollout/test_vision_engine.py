"""Engines on prompts with images and videos, against transformers' own forward and `generate`, and the learner."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model.tiny_vision import (
    EOS,
    IMAGE,
    KINDS,
    VIDEO,
    WORDS,
    mixed_prompts,
    their_log_probs,
    theirs,
    tiny_vision,
    vision_prompt,
)
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.learn.scoring import score
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.hf.engine import HFEngine
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _native(model: PreTrainedModel, tokenizer: Any, slots: int = 64) -> NativeEngine:
    return NativeEngine(model, tokenizer, frozenset({EOS}), slots)


def _greedy(model: PreTrainedModel, prompt: Prompt, tokens: int) -> tuple[list[int], list[float]]:
    """Greedy decoding by whole forward passes of transformers, placeholders left out."""
    ids: list[int] = []
    log_probs: list[float] = []
    while len(ids) < tokens and (not ids or ids[-1] != EOS):
        logits = theirs(model, prompt, [*ids, 0])[-1]
        token = int(torch.cat([logits[:WORDS], torch.full((4,), -1e9), logits[WORDS + 4 :]]).argmax())
        log_probs.append(float(torch.log_softmax(logits, dim=-1)[token]))
        ids.append(token)
    return ids, log_probs


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_greedy_is_what_transformers_writes(kind: str, tokenizer: Any) -> None:
    model, plain = tiny_vision(kind), tiny_vision(kind, ours=False)
    prompts = mixed_prompts(model.config)
    params = SamplingParams(temperature=0.0, max_tokens=8)
    samples = _native(model, tokenizer, slots=3).generate(prompts, params)
    by_generate = HFEngine(model, tokenizer, frozenset({EOS})).generate(prompts, params)
    for sample, other, prompt in zip(samples, by_generate, prompts, strict=True):
        ids, log_probs = _greedy(plain, prompt, 8)
        assert sample.ids == ids == other.ids
        assert sample.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert other.log_probs == pytest.approx(log_probs, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_sampled_log_probs_are_the_learners(kind: str, tokenizer: Any) -> None:
    model, plain = tiny_vision(kind), tiny_vision(kind, ours=False)
    samples = _native(model, tokenizer, slots=4).generate(
        mixed_prompts(model.config), SamplingParams(n=2, temperature=0.7, max_tokens=9, seed=3)
    )
    scored = score(model, samples, 0.7, share_prefix=True).log_probs_BT
    for sample, row in zip(samples, scored):
        assert sample.log_probs == pytest.approx(row[: len(sample.ids)].tolist(), abs=1e-4)
        assert sample.log_probs == pytest.approx(their_log_probs(plain, sample, 0.7).tolist(), abs=1e-4)


@torch.no_grad()
def test_the_samples_of_a_prompt_share_one_pass_of_the_tower(tokenizer: Any) -> None:
    model = tiny_vision("qwen2_5_vl")
    prompt = vision_prompt(model.config, images=[(1, 4, 4), (1, 2, 4)], seed=9)
    passes: list[int] = []
    hook = model.base_model.visual.register_forward_hook(lambda _module, given, _out: passes.append(len(given[0])))
    samples = _native(model, tokenizer, slots=2).generate([prompt], SamplingParams(n=5, max_tokens=4, ignore_eos=True))
    assert passes == [16 + 8]
    passes.clear()
    score(model, samples, 1.0, share_prefix=True)
    assert passes == [16 + 8]
    hook.remove()


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9, "top_k": 40}, {"temperature": 0.0}])
@pytest.mark.parametrize("engine", [NativeEngine, HFEngine])
@torch.no_grad()
def test_placeholders_are_never_sampled(engine: Any, filters: dict[str, Any], tokenizer: Any) -> None:
    model = tiny_vision("qwen3_vl")
    forbidden = {IMAGE, VIDEO, WORDS, WORDS + 1}
    model.lm_head.weight[sorted(forbidden)] *= 20  # by themselves they would be most of what is sampled
    prompts = mixed_prompts(model.config)
    samples = engine(model, tokenizer, frozenset({EOS})).generate(
        prompts, SamplingParams(**{"n": 4, "max_tokens": 6, "ignore_eos": True, "seed": 2} | filters)
    )
    assert not {i for sample in samples for i in sample.ids} & forbidden
    scored = score(model, samples, filters.get("temperature", 1.0), share_prefix=True).log_probs_BT
    for sample, row in zip(samples, scored):
        assert sample.log_probs == pytest.approx(row[: len(sample.ids)].tolist(), abs=1e-4)
    assert min(min(sample.log_probs) for sample in samples) < -3  # of the whole distribution, not of what is left


def test_prompts_that_do_not_fit_their_images_are_named(tokenizer: Any, llama: Any) -> None:
    model = tiny_vision("qwen2_5_vl")
    good = vision_prompt(model.config, images=[(1, 4, 4)], seed=1)
    for ids, said in (
        ([*good.ids, IMAGE, 3], "5 image tokens"),
        ([i for i in good.ids if i != IMAGE], "0 image tokens"),
        ([*good.ids, VIDEO, 3], "1 video tokens"),
        (good.ids[: good.ids.index(IMAGE) + 4], "cannot end with an image"),
    ):
        with pytest.raises(UserError, match=said):
            _native(model, tokenizer).generate([Prompt("row 7", ids, "", media=good.media)], SamplingParams())
    with pytest.raises(UserError, match=r"row:1.*does not read"):
        llama.engine().generate([good], SamplingParams())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
@torch.no_grad()
def test_pages_and_fused_kernels_draw_the_same(
    kind: str, tokenizer: Any, kernels_everywhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.model.fused import decoder_of, fuse
    from whet.rollout.engines.native.paged import PagedRunner

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # a GPU rounds the patches' convolution, fp32 or not
    model, plain = tiny_vision(kind).to(DEVICE), tiny_vision(kind, ours=False)
    assert fuse(model)
    assert decoder_of(model) is not None
    engine = _native(model, tokenizer, slots=3)
    assert isinstance(engine._runner, PagedRunner)
    prompts = mixed_prompts(model.config)[2:5] + mixed_prompts(model.config)[:1]
    samples = engine.generate(prompts, SamplingParams(temperature=0.7, max_tokens=4, seed=3))
    assert not {i for sample in samples for i in sample.ids} & {IMAGE, VIDEO, WORDS, WORDS + 1}
    for sample in samples:
        assert sample.log_probs == pytest.approx(their_log_probs(plain, sample, 0.7).tolist(), abs=1e-4)
