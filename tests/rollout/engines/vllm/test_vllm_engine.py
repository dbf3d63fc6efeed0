"""A real vLLM in a child process, against transformers and the native engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tiny_models import Tiny

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import Piece, SamplingParams
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.types import Prompt, Sample

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@torch.no_grad()
def greedy(model: Tiny, prompt: Prompt, steps: int) -> list[int]:
    """What transformers' own generate writes."""
    ids = torch.tensor([prompt.ids])
    written = model.reference().generate(ids, max_new_tokens=steps, do_sample=False, pad_token_id=0, eos_token_id=None)
    return written[0, len(prompt.ids) :].tolist()


def ids_of(samples: list[Sample]) -> list[list[int]]:
    return [sample.ids for sample in samples]


def test_greedy_is_that_of_transformers(engine: VLLMEngine, tiny_model: Tiny, prompts: list[Prompt]) -> None:
    samples = engine.generate(prompts, GREEDY)
    assert ids_of(samples) == [greedy(tiny_model, prompt, 24) for prompt in prompts]
    assert {sample.finish for sample in samples} == {"length"}


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_log_probs_are_those_of_a_full_pass(
    engine: VLLMEngine, tiny_model: Tiny, prompts: list[Prompt], full_log_probs: Callable, temperature: float
) -> None:
    model = tiny_model.reference()
    samples = engine.generate(prompts, SamplingParams(n=2, temperature=temperature, max_tokens=24))
    for sample in samples:
        expected = full_log_probs(model, sample, temperature or 1.0)
        assert sample.log_probs == pytest.approx(expected, abs=1e-3)


def test_samples_follow_their_ids_and_not_their_batch(engine: VLLMEngine, prompts: list[Prompt]) -> None:
    params = SamplingParams(n=3, temperature=1.0, max_tokens=16, seed=5)
    heard: list[int] = []
    ids = [7 * i for i in range(len(prompts))]
    samples = engine.generate(prompts, params, ids, heard.append)
    assert sum(heard) == len(samples) == 3 * len(prompts)
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(3)]
    assert ids_of(engine.generate(prompts[1:2], params, ids[1:2])) == ids_of(samples[3:6])
    assert ids_of(engine.generate(prompts[1:2], replace(params, n=1), [ids[1] + 2])) == ids_of(samples[5:6])
    assert len({tuple(sample.ids) for sample in samples[:3]}) == 3
    assert ids_of(engine.generate(prompts, replace(params, seed=6), ids)) != ids_of(samples)


def test_responses_end_where_the_native_engine_ends_them(engine: VLLMEngine, tiny_model: Tiny) -> None:
    native, tokenizer = tiny_model.engine(), tiny_model.tokenizer
    texts = ("the answer", "is seven", "stop", "here and now")
    prompts = [Prompt(text, tokenizer.encode(text), text) for text in texts]
    written = {tokenizer.decode([t]) for sample in native.generate(prompts, GREEDY) for t in sample.ids[4:]}
    stop = tuple(sorted(text for text in written if text.strip() and text.isascii() and text.isprintable()))[:3]
    assert stop
    for params in (replace(GREEDY, stop=stop), replace(GREEDY, ignore_eos=False), replace(GREEDY, max_tokens=3)):
        ours, theirs = engine.generate(prompts, params), native.generate(prompts, params)
        assert [(s.ids, s.finish) for s in ours] == [(s.ids, s.finish) for s in theirs]
    stopped = engine.generate(prompts, replace(GREEDY, stop=stop))
    assert "stop" in {sample.finish for sample in stopped}
    assert all(len(sample.ids) == len(sample.log_probs) == len(sample.mask) for sample in stopped)


def test_an_end_token_is_the_last_of_its_response(engine: VLLMEngine, prompts: list[Prompt]) -> None:
    samples = engine.generate(prompts, SamplingParams(n=8, temperature=2.0, max_tokens=80))
    ended = [sample for sample in samples if sample.finish == "stop"]
    assert ended
    assert all(sample.ids[-1] == 1 and 1 not in sample.ids[:-1] for sample in ended)


def test_new_weights_are_sampled_from_and_stamped(
    engine: VLLMEngine, tiny_model: Tiny, model_of: Callable[..., Tiny], prompts: list[Prompt], kind: str
) -> None:
    other = model_of(kind, seed=1)
    before = engine.generate(prompts, GREEDY)
    engine.load_weights(lambda: folder_weights(other.model()), 7)
    after = engine.generate(prompts, GREEDY)
    assert ids_of(after) != ids_of(before)
    assert ids_of(after) == [greedy(other, prompt, 24) for prompt in prompts]
    assert {sample.version for sample in after} == {7}
    engine.release()
    engine.load_weights(lambda: folder_weights(tiny_model.model()), 8)
    assert ids_of(engine.generate(prompts, GREEDY)) == ids_of(before)


def test_weights_that_are_not_the_learners_are_not_sampled_from(engine: VLLMEngine, prompts: list[Prompt]) -> None:
    engine.version += 1
    try:
        with pytest.raises(RuntimeError, match="holds version 8 of the weights, not 9"):
            engine.generate(prompts[:1], GREEDY)
    finally:
        engine.version -= 1
    assert engine.generate(prompts[:1], GREEDY)


def test_calls_join_and_leave(engine: VLLMEngine, prompts: list[Prompt]) -> None:
    async def both() -> list[list[Sample]]:
        leaving = asyncio.create_task(engine.sample(prompts[0], replace(GREEDY, max_tokens=150)))
        first = asyncio.create_task(engine.sample(prompts[2], GREEDY))
        await asyncio.sleep(0.05)
        leaving.cancel()
        results = [await first, await engine.sample(prompts[3], GREEDY)]
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return results

    one, two = asyncio.run(both())
    assert ids_of(one + two) == ids_of(engine.generate([prompts[2], prompts[3]], GREEDY))


@pytest.mark.parametrize("stop", [(), ("e", "1")])
def test_a_stream_adds_up_to_the_samples(engine: VLLMEngine, prompts: list[Prompt], stop: tuple[str, ...]) -> None:
    params = SamplingParams(n=2, temperature=1.0, max_tokens=40, ignore_eos=True, seed=5, stop=stop)
    samples = engine.generate(prompts, params)
    streamed: dict[tuple[int, int], list[Piece]] = {}

    async def read() -> None:
        async for piece in engine.stream(prompts, params):
            streamed.setdefault((piece.prompt, piece.index), []).append(piece)

    asyncio.run(read())
    if not stop:  # which may come with the first token
        assert max(len(pieces) for pieces in streamed.values()) > 2
    for at, sample in enumerate(samples):
        pieces = streamed[at // 2, at % 2]
        assert [token for piece in pieces for token in piece.ids] == sample.ids
        found = [log_prob for piece in pieces for log_prob in piece.log_probs]
        assert found == pytest.approx(sample.log_probs, abs=1e-4)
        assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [sample.finish]


def test_a_stream_of_a_prompt_that_cannot_be_read_names_it(engine: VLLMEngine) -> None:
    async def read() -> None:
        async for _ in engine.stream([Prompt("row 3", [320], "")], GREEDY):
            pass

    with pytest.raises(UserError, match=r"row 3: .*from 0 to 319"):
        asyncio.run(read())


def test_prompts_that_cannot_be_read_are_named(engine: VLLMEngine) -> None:
    for ids, words in (([], "one or more token ids"), ([320], "from 0 to 319"), ([5] * 150, "max_model_len=160")):
        with pytest.raises(UserError, match=f"row 3: .*{words}"):
            engine.generate([Prompt("row 3", ids, "")], GREEDY)
