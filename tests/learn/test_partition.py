"""Samples over ranks: all of them, evenly, and together where they share a prompt."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.samples import batch, sample

from whet.learn.partition import assign, passes
from whet.learn.ranks import Ranks
from whet.types import Prompt, Sample


def _group(name: str, prompt: int, responses: list[int]) -> list[Sample]:
    shared = Prompt(name, [1] * prompt, "")
    return [sample(shared, [2] * length) for length in responses]


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), max_size=8),
    ranks=st.integers(1, 6),
    share=st.booleans(),
)
def test_every_sample_has_one_rank(groups: list[list[int]], ranks: int, share: bool) -> None:
    samples = [each for i, lengths in enumerate(groups) for each in _group(str(i), 5, lengths)]
    shares = assign(samples, ranks, share)
    assert len(shares) == ranks
    assert sorted(i for part in shares for i in part) == list(range(len(samples)))
    assert all(part == sorted(part) for part in shares)
    assert shares == assign(samples, ranks, share)  # ranks that do not talk must agree


def test_samples_of_a_prompt_stay_together_where_work_is_even() -> None:
    samples = [each for i in range(8) for each in _group(str(i), 50, [100, 90, 110])]
    for part in assign(samples, 4):
        prompts = [samples[i].prompt.uid for i in part]
        assert all(prompts.count(uid) == 3 for uid in prompts)


def test_a_prompt_is_parted_where_one_rank_would_have_most_of_the_work() -> None:
    samples = _group("long", 10, [500] * 8) + _group("short", 10, [20] * 2)
    tokens = [sum(len(samples[i].ids) for i in part) for part in assign(samples, 4)]
    assert max(tokens) <= 1040
    assert min(tokens) >= 1000


def test_work_is_even_for_ragged_samples() -> None:
    rng = random.Random(0)
    samples = [each for i in range(64) for each in _group(str(i), 100, [rng.randint(10, 4000) for _ in range(8)])]
    tokens = [sum(len(samples[i].ids) for i in part) for part in assign(samples, 8)]
    assert max(tokens) < 1.1 * sum(tokens) / 8


def test_one_process_has_all_in_order_and_never_idles() -> None:
    samples = batch()
    planned = passes(Ranks(), samples, True, None, 5)
    assert [i for rows in planned.micros for i in rows] == list(range(12))
    assert planned.idle == 0


@pytest.mark.parametrize("ranks", [1, 3])
def test_nothing_can_be_divided(ranks: int) -> None:
    assert assign([], ranks) == [[] for _ in range(ranks)]
