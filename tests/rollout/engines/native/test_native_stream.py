"""Streamed responses are the sampled ones, whole, however slowly they are read and whoever leaves."""

from __future__ import annotations

import asyncio

import pytest
import torch
from patience import PATIENCE, eventually

from whet.rollout.engine import Piece, SamplingParams

ENDS = tuple(range(0, 320, 16))
DEADLINE = PATIENCE


async def _joined(engine, prompts, params, ids=None, delay: float = 0.0) -> dict[tuple[int, int], Piece]:
    """The pieces of each response put together."""
    whole: dict[tuple[int, int], Piece] = {}
    async for piece in engine.stream(prompts, params, ids):
        before = whole.get((piece.prompt, piece.index), Piece(piece.prompt, piece.index, [], [], [], None))
        assert before.finish is None, "nothing comes after the end"
        whole[piece.prompt, piece.index] = Piece(
            piece.prompt,
            piece.index,
            before.ids + piece.ids,
            before.log_probs + piece.log_probs,
            before.tops + piece.tops,
            piece.finish,
        )
        await asyncio.sleep(delay)
    return whole


def test_streams_are_what_generate_returns(llama, prompts) -> None:
    params = SamplingParams(n=3, max_tokens=30, seed=4)
    expected = llama.engine(torch.float64, ends=ENDS).generate(prompts, params)
    engine = llama.engine(torch.float64, ends=ENDS, slots=5)

    async def both():
        slow = _joined(engine, prompts[:3], params, delay=0.003)
        fast = _joined(engine, prompts[3:], params, [9, 12, 15])
        return await asyncio.wait_for(asyncio.gather(slow, fast), DEADLINE)

    slow, fast = asyncio.run(both())
    got = [*(slow[p, i] for p in range(3) for i in range(3)), *(fast[p, i] for p in range(3) for i in range(3))]
    assert [piece.ids for piece in got] == [s.ids for s in expected]
    assert [piece.finish for piece in got] == [s.finish for s in expected]
    assert torch.allclose(
        torch.tensor([x for piece in got for x in piece.log_probs], dtype=torch.float64),
        torch.tensor([x for s in expected for x in s.log_probs], dtype=torch.float64),
    )


def test_the_first_tokens_come_long_before_the_last(llama, prompts) -> None:
    engine = llama.engine(ends=())

    async def lengths() -> list[int]:
        return [len(piece.ids) async for piece in engine.stream(prompts[:1], SamplingParams(max_tokens=200, seed=1))]

    seen = asyncio.run(asyncio.wait_for(lengths(), DEADLINE))
    assert sum(seen) == 200
    assert len(seen) > 20


def test_a_reader_that_leaves_frees_its_slots(llama, prompts) -> None:
    engine = llama.engine(ends=(), slots=2)

    async def leave() -> None:
        stream = engine.stream(prompts[:2], SamplingParams(n=4, max_tokens=100_000))
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(asyncio.wait_for(leave(), DEADLINE))
    assert eventually(lambda: engine._driver is None)
    assert not engine._scheduler.running
    assert not engine._scheduler.waiting


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_likeliest_tokens_are_those_of_a_whole_forward_pass(llama, prompts, temperature) -> None:
    engine = llama.engine(torch.float32, ends=())
    params = SamplingParams(max_tokens=6, temperature=temperature, top_logprobs=5, top_p=0.9)
    piece = asyncio.run(asyncio.wait_for(_joined(engine, prompts[:1], params), DEADLINE))[0, 0]
    with torch.no_grad():
        logits = llama.reference()(torch.tensor([prompts[0].ids + piece.ids])).logits[0, len(prompts[0].ids) - 1 : -1]
    values, tokens = torch.log_softmax(logits / (temperature or 1.0), -1).topk(5)
    assert [[token for token, _ in place] for place in piece.tops] == tokens.tolist()
    assert torch.allclose(torch.tensor([[v for _, v in place] for place in piece.tops]), values, atol=1e-4)
    if temperature == 0:
        assert [place[0][0] for place in piece.tops] == piece.ids
