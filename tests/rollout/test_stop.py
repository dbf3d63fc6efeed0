"""When a response ends: stop strings across tokens and inside characters, end tokens, lengths."""

from __future__ import annotations

import pytest
import torch

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.sequence import Request, Sequence
from whet.rollout.stop import StopCheck
from whet.types import Prompt


def _write(tokenizer, ids: list[int], params: SamplingParams, ends: frozenset[int] = frozenset()) -> Sequence:
    """Feed a response to the check, as the engine does, until it says stop: token by token, and a few at a time."""
    check = StopCheck(tokenizer, ends)
    written = []
    for window in (1, 3, 8):
        sequence = Sequence(Request(Prompt("row", [5], ""), params), 0, 0)
        for i in range(0, len(ids), window):
            taken, sequence.finish = check(sequence, ids[i : i + window])
            sequence.ids += ids[i : i + window][:taken]
            if sequence.finish is not None:
                break
        written.append(sequence)
    assert len({(tuple(s.ids), s.finish) for s in written}) == 1
    return written[0]


def _bytes(tokenizer, text: str) -> list[int]:
    """One token a byte: the most pieces that a text can come in."""
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(c)) for c in text]
    return [i for piece in ids for i in piece]


@pytest.mark.parametrize("spell", [lambda t, s: t.encode(s, add_special_tokens=False), _bytes], ids=["words", "bytes"])
@pytest.mark.parametrize("stop", ["stop", "here and", "</answer>", "né", "日本", "🙂!", "\n\n"])
def test_a_response_ends_at_the_first_token_that_completes_a_stop_string(tokenizer, spell, stop: str) -> None:
    ids = spell(tokenizer, f"é日🙂 the answer \n is {stop} and then more")
    first = next(i for i in range(len(ids)) if stop in tokenizer.decode(ids[: i + 1]))
    sequence = _write(tokenizer, ids, SamplingParams(stop=("never written at all", stop)))
    assert sequence.finish == "stop"
    assert sequence.ids == ids[: first + 1]


def test_the_stop_string_is_found_at_the_end_of_a_long_response(tokenizer) -> None:
    ids = _bytes(tokenizer, "the answer is é " * 40 + "日本")
    sequence = _write(tokenizer, ids, SamplingParams(stop=("日本",), max_tokens=10_000))
    assert (sequence.finish, sequence.ids) == ("stop", ids)


def test_half_a_character_is_no_stop(tokenizer) -> None:
    ids = _bytes(tokenizer, "日")[:-1]
    assert _write(tokenizer, ids, SamplingParams(stop=("日",))).finish is None


def test_a_special_token_can_be_a_stop_string(tokenizer) -> None:
    ids = tokenizer.encode("seven<|user|>more", add_special_tokens=False)
    sequence = _write(tokenizer, ids, SamplingParams(stop=("<|user|>",)))
    assert tokenizer.decode(sequence.ids) == "seven<|user|>"


def test_end_before_stop_before_length(tokenizer) -> None:
    ids = _bytes(tokenizer, "abc")
    ends = frozenset({ids[1]})
    assert _write(tokenizer, ids, SamplingParams(max_tokens=2), ends).finish == "stop"
    assert _write(tokenizer, ids, SamplingParams(max_tokens=2, ignore_eos=True), ends).finish == "length"
    assert _write(tokenizer, ids, SamplingParams(max_tokens=2, stop=("ab",))).finish == "stop"


def test_the_engine_stops_samples_where_their_text_says(llama, prompts) -> None:
    engine, tokenizer = llama.engine(torch.float64, ends=()), llama.tokenizer
    free = engine.generate(prompts, SamplingParams(n=3, max_tokens=60, seed=2))
    text = tokenizer.decode(free[0].ids)
    stops = (text[6:9], tokenizer.decode(free[4].ids)[10:12])
    stopped = engine.generate(prompts, SamplingParams(n=3, max_tokens=60, seed=2, stop=stops))
    for whole, cut in zip(free, stopped):
        ends = [i for i in range(60) if any(s in tokenizer.decode(whole.ids[: i + 1]) for s in stops)]
        assert cut.ids == whole.ids[: ends[0] + 1 if ends else 60]
        assert cut.finish == ("stop" if ends else "length")
    assert {s.finish for s in stopped} == {"stop", "length"}
