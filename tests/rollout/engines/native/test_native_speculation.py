"""Guesses of the next tokens: which are made, when they are checked, and that samples do not depend on them."""

from __future__ import annotations

import random
from itertools import cycle
from typing import Any

import pytest
import torch
from tiny_models import MakeTiny

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.drafting import Drafter, Speculation, accepted
from whet.rollout.engines.native.sequence import Request, Sequence
from whet.types import Prompt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _request(prompt: list[int], *responses: list[int]) -> Request:
    request = Request(Prompt("row", prompt, ""), SamplingParams(n=len(responses)))
    request.sequences = [Sequence(request, i, key=i, ids=list(ids)) for i, ids in enumerate(responses)]
    return request


def test_a_guess_is_what_followed_the_same_tokens() -> None:
    request = _request([1, 2, 3, 4], [5, 1, 2, 3], [7, 8, 9, 6, 6])
    first, second = request.sequences
    drafter = Drafter()
    drafter.read(first, 4)
    assert drafter.guess(first, 4) == [4, 5, 1, 2, 3]  # the prompt, and what it wrote itself
    drafter.read(second, 5)
    assert drafter.guess(second, 5) == []
    first.ids += [7, 8, 9]
    drafter.read(first, 7)
    assert drafter.guess(first, 7) == [6, 6]  # another sample


def test_a_guess_never_looks_ahead() -> None:
    request = _request([1], [2, 3, 4, 2, 3, 4, 9, 9])
    (sequence,) = request.sequences
    drafter = Drafter()
    drafter.read(sequence, 6)
    assert drafter.guess(sequence, 6) == [2, 3, 4]


def test_tokens_up_to_the_first_wrong_guess_are_taken() -> None:
    assert accepted([], [4]) == 1
    assert accepted([4, 5, 6], [4, 5, 6, 7]) == 4
    assert accepted([4, 5, 6], [4, 9, 6, 7]) == 2
    assert accepted([4, 5, 6], [9, 5, 6, 7]) == 1


@pytest.mark.parametrize("repeats", [True, False])
def test_guesses_are_checked_where_they_come_true(repeats: bool) -> None:
    rng = random.Random(0)
    request = _request([1, 2, 3], [])
    speculation = Speculation()
    text = [i % 5 for i in range(400)] if repeats else [rng.randrange(1000) for _ in range(400)]
    was = []
    for at in range(0, 400, 8):  # as windows bring them
        for sequence in request.sequences:
            sequence.ids += text[at : at + 8]
        was.append(speculation.guesses(request.sequences) is not None)
    assert was[-1] is repeats
    assert any(was) is repeats


def test_checking_ends_where_guesses_fail() -> None:
    request, speculation, rng = _request([1, 2, 3], []), Speculation(), random.Random(0)
    (sequence,) = request.sequences
    for _ in range(40):
        sequence.ids += [1, 2, 3, 4, 5, 6, 7, 8]
        speculation.guesses([sequence])
    assert speculation.active
    for _ in range(40):
        sequence.ids += [rng.randrange(1000) for _ in range(8)]
        speculation.guesses([sequence])
    assert not speculation.active


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_samples_are_the_same_with_and_without(
    tiny: MakeTiny, tokenizer: Any, kernels_everywhere: None, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses that come true, that fail half way and that fail at once; windows before and between them."""
    pytest.importorskip("triton", reason="the paged runner is made of triton kernels")
    from whet.model.load import load_model
    from whet.rollout.engines.native.engine import NativeEngine
    from whet.rollout.engines.native.verifying import Verifier

    sizes = {"intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    model = load_model(tiny("llama", **sizes).path, device=DEVICE)
    prompts = [Prompt("a", [5, 6, 7, 8], ""), Prompt("b", [9] * 5, "")]
    params = SamplingParams(n=1, temperature=temperature, max_tokens=24, seed=3)
    expected = NativeEngine(model, tokenizer, frozenset(), 4).generate(prompts, params)
    truth, wrongs = {sample.prompt.uid: sample.ids for sample in expected}, cycle([5, 3, 0])

    def guesses(_self: Speculation, running: list[Sequence]) -> list[list[int]] | None:
        found = []
        for sequence in running:
            at = len(sequence.ids)
            guess = truth[sequence.request.prompt.uid][at : at + 5]
            wrong = next(wrongs)  # 5: none of these
            found.append([token ^ (i == wrong) for i, token in enumerate(guess)])
        return None if len(running[0].ids) % 5 == 0 else found

    taken: list[int] = []
    check = Verifier.check

    def noted(*given: Any) -> Any:
        drawn = check(*given)
        taken.extend(map(len, drawn.tokens))
        return drawn

    monkeypatch.setattr(Speculation, "guesses", guesses)
    monkeypatch.setattr(Verifier, "check", noted)
    engine = NativeEngine(model, tokenizer, frozenset(), 4, speculate=True)
    drawn = engine.generate(prompts, params)
    assert engine.occupancy().pages_used == 0
    assert {1, 4, 6} <= set(taken)  # wrong at once, after three, and five that came true
    for a, b in zip(drawn, expected):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.log_probs), torch.tensor(b.log_probs), rtol=0, atol=1e-5)
