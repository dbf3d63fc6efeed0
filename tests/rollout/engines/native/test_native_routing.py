"""Mixtures of experts: the engine's routing is recorded with the samples, and the learner replays it."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from tiny_models import WRITER, byte_tokenizer, random_model, tiny_config
from transformers import PreTrainedModel

from whet.learn.scoring import score
from whet.model.routing import mixtures, replay_routing
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt, Sample, Segment

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROMPTS = [Prompt("a", [5, 9, 30, 7], ""), Prompt("b", [11, 4], "")]
PARAMS = SamplingParams(n=2, max_tokens=5, ignore_eos=True, seed=3)


def _model() -> PreTrainedModel:
    return random_model(tiny_config("qwen3_moe", **WRITER | {"head_dim": 16}), 3, "whet").to(DEVICE).eval()


def _engine(model: PreTrainedModel, **given: bool) -> NativeEngine:
    return NativeEngine(model, byte_tokenizer(), frozenset({1}), 4, **given)


def _chosen(model: PreTrainedModel, sample: Sample) -> np.ndarray:
    """The experts that transformers' own routers choose for a sample's tokens but the last, (tokens, layers, K)."""
    found = []
    hooks = [b.gate.register_forward_hook(lambda m, a, out: found.append(out[2])) for b in mixtures(model)]
    ids = torch.tensor([sample.prompt.ids + sample.ids[:-1]], device=DEVICE)
    from whet.model.attention import PackedAttention
    from whet.model.attention import Segment as Part

    with torch.no_grad():
        model.base_model(input_ids=ids, use_cache=False, attention=PackedAttention([Part(0, ids.shape[1])], DEVICE))
    for hook in hooks:
        hook.remove()
    return torch.stack(found, 1).cpu().numpy()


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return _model()


@pytest.fixture(scope="module")
def recorded(model: PreTrainedModel) -> list[Sample]:
    return _engine(model, record_routing=True).generate(PROMPTS, PARAMS)


def test_every_token_has_the_experts_that_it_was_sampled_with(model: PreTrainedModel, recorded: list[Sample]) -> None:
    for sample in recorded:
        assert sample.routing.shape == (len(sample.prompt.ids) + 4, 2, 2)
        assert sample.routing.dtype == np.uint8
        assert np.array_equal(np.sort(sample.routing), np.sort(_chosen(model, sample)))


def test_recording_changes_no_sample(model: PreTrainedModel, recorded: list[Sample]) -> None:
    plain = _engine(model).generate(PROMPTS, PARAMS)
    assert [s.ids for s in plain] == [s.ids for s in recorded]
    assert all(s.routing is None for s in plain)


@(pytest.mark.slow if DEVICE == "cpu" else pytest.mark.early)
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_pages_draw_the_samples_of_the_plain_path_and_record_the_same(
    kernels_everywhere: None, model: PreTrainedModel, recorded: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.model.fused import fuse, unfuse
    from whet.rollout.engines.native import flight, paged, routes, tops

    if DEVICE == "cpu":  # a window is computed whole, a tenth of a second for each token
        for module in (flight, paged, routes, tops):
            monkeypatch.setattr(module, "LOOKAHEAD", 2)
    short = SamplingParams(n=1, max_tokens=2, ignore_eos=True, seed=3)
    assert fuse(model)
    try:
        (sample,) = _engine(model, record_routing=True).generate(PROMPTS[:1], short)
    finally:
        unfuse(model)
    assert sample.ids == recorded[0].ids[:2]
    assert np.array_equal(np.sort(sample.routing), np.sort(recorded[0].routing[: len(sample.routing)]))


def test_a_continued_sample_keeps_the_routing_of_its_first_tokens(
    model: PreTrainedModel, recorded: list[Sample]
) -> None:
    begun = recorded[0]
    begun = Sample(begun.prompt, [*begun.segments, Segment([7, 8], by_model=False)], "stop", routing=begun.routing + 0)
    begun.routing[:3] = [[0, 1]] * 2  # as if other weights had written it
    one = SamplingParams(n=1, max_tokens=3, ignore_eos=True)
    (sample,) = _engine(model, record_routing=True).generate([begun], one)
    assert len(sample.routing) == len(begun.prompt.ids) + 5 + 2 + 3 - 1
    assert np.array_equal(sample.routing[:3], begun.routing[:3])
    assert np.array_equal(np.sort(sample.routing[8:]), np.sort(_chosen(model, sample)[8:]))


@pytest.mark.parametrize("share_prefix", [True, False])
def test_the_learner_replays_it_whatever_its_router_says(recorded: list[Sample], share_prefix: bool) -> None:
    model = _model()
    replay_routing(model)
    right = [s.log_probs for s in recorded]
    with torch.no_grad():
        found = score(model, recorded, 1.0, share_prefix).log_probs_BT.cpu()
        assert np.allclose(found, right, atol=1e-4)
        for block in mixtures(model):  # the same probabilities of the chosen, another choice
            block.gate.weight.add_(0.3 * torch.randn_like(block.gate.weight))
        replayed = score(model, recorded, 1.0, share_prefix).log_probs_BT.cpu()
        free = score(model, [_without(s) for s in recorded], 1.0, share_prefix).log_probs_BT.cpu()
    assert not torch.allclose(replayed, free, atol=1e-3)
    assert (replayed - torch.tensor(right)).abs().mean() < (free - torch.tensor(right)).abs().mean()


def _without(sample: Sample) -> Sample:
    return Sample(sample.prompt, sample.segments, sample.finish)
