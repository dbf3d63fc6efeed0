"""A sample is a function of the weights, its prompt, its parameters and (seed, sample id): of nothing else.

In float64, so that the last bit of a sum, which does depend on the batch, cannot decide between two tokens.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from whet.rollout.engine import SamplingParams

PARAMS = SamplingParams(n=3, temperature=1.0, max_tokens=20, seed=11)
ENDS = tuple(range(0, 320, 16))


def _ids(samples) -> list[list[int]]:
    return [s.ids for s in samples]


@pytest.fixture(scope="module")
def engine(llama):
    return llama.engine(torch.float64, ends=ENDS)


@pytest.fixture(scope="module")
def expected(engine, prompts) -> list[list[int]]:
    return _ids(engine.generate(prompts, PARAMS))


@pytest.mark.parametrize(("slots", "budget"), [(1, 1), (2, 8192), (5, 40), (17, 8192)])
def test_samples_do_not_depend_on_slots_or_prefill_budget(llama, prompts, expected, slots, budget) -> None:
    assert (
        _ids(llama.engine(torch.float64, ends=ENDS, slots=slots, budget=budget).generate(prompts, PARAMS)) == expected
    )


def test_samples_do_not_depend_on_the_other_prompts_or_their_order(engine, prompts, expected) -> None:
    n = PARAMS.n
    for i, prompt in enumerate(prompts):
        assert _ids(engine.generate([prompt], PARAMS, [i * n])) == expected[i * n : (i + 1) * n]
    backwards = _ids(engine.generate(prompts[::-1], PARAMS, [i * n for i in range(len(prompts))][::-1]))
    assert backwards == [row for i in reversed(range(len(prompts))) for row in expected[i * n : (i + 1) * n]]


def test_a_sample_is_named_by_its_id_not_by_its_group(engine, prompts, expected) -> None:
    """Sample 4 is the second of prompt 1's three; asked for alone under its own id it is the same."""
    (alone,) = engine.generate([prompts[1]], replace(PARAMS, n=1), [4])
    assert alone.ids == expected[4]


def test_other_parameters_in_the_batch_change_nothing(engine, prompts, expected) -> None:
    requests = [engine.submit(p, PARAMS, i * PARAMS.n) for i, p in enumerate(prompts)]
    others = [SamplingParams(temperature=0.0), SamplingParams(n=2, top_k=5, max_tokens=40), SamplingParams(top_p=0.5)]
    for i, params in enumerate(others):
        engine.submit(prompts[i], params, 100 + i)
    while engine.step():
        pass
    assert [s.ids for r in requests for s in r.sequences] == expected


def test_the_same_seed_twice_is_the_same_and_another_is_not(engine, prompts, expected) -> None:
    assert _ids(engine.generate(prompts, PARAMS)) == expected
    assert _ids(engine.generate(prompts, replace(PARAMS, seed=12))) != expected


def test_two_sample_ids_write_two_responses(engine, prompts) -> None:
    params = replace(PARAMS, n=16, ignore_eos=True)
    drawn = _ids(engine.generate([prompts[0], prompts[0]], params))
    assert len({tuple(row) for row in drawn}) == 32
    again = _ids(engine.generate([prompts[0], prompts[0]], params, [0, 0]))
    assert again[:16] == again[16:] == drawn[:16]


def test_neither_torchs_generator_nor_the_version_matters(engine, prompts, expected) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    engine.version = 7
    samples = engine.generate(prompts, PARAMS)
    assert torch.equal(torch.get_rng_state(), before)
    assert _ids(samples) == expected
    assert {s.version for s in samples} == {7}
