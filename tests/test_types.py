"""Samples: views over segments, and rewards on the tokens that earned them."""

from __future__ import annotations

import itertools

import pytest

from whet.types import Prompt, Sample, Segment, segments_of

PROMPT = Prompt("rows.jsonl:1", [1, 2], "?")


def two_turns() -> Sample:
    segments = [
        Segment([5, 6, 7], log_probs=[-0.1, -0.2, -0.3], version=3, reward=0.5),
        Segment([8, 9], by_model=False),
        Segment([4], log_probs=[-0.4], version=4),
    ]
    return Sample(PROMPT, segments, "stop", group=7, scores={"overall": 2.0})


def test_views_over_two_turns() -> None:
    sample = two_turns()
    assert sample.ids == [5, 6, 7, 8, 9, 4]
    assert sample.mask == [1, 1, 1, 0, 0, 1]
    assert sample.log_probs == [-0.1, -0.2, -0.3, 0.0, 0.0, -0.4]
    assert sample.versions == [3, 3, 3, -1, -1, 4]
    assert sample.rewards == [0.0, 0.0, 0.5, 0.0, 0.0, 2.0]
    assert (sample.version, sample.turns, sample.reward) == (3, 2, 2.5)


def test_a_single_turn() -> None:
    sample = Sample.written(PROMPT, [3, 4], [-1.0, -2.0], "length", version=2, scores={"overall": 1.0})
    assert (sample.ids, sample.mask, sample.log_probs) == ([3, 4], [1, 1], [-1.0, -2.0])
    assert (sample.versions, sample.rewards, sample.turns, sample.reward) == ([2, 2], [0.0, 1.0], 1, 1.0)


def test_a_sample_that_was_aborted_before_its_first_token() -> None:
    sample = Sample.written(PROMPT, [], [], "abort", scores={"overall": 1.0})
    assert (sample.ids, sample.mask, sample.rewards, sample.reward) == ([], [], [], 1.0)


def test_an_environment_that_answers_with_nothing_still_pays() -> None:
    segments = [Segment([5, 6], log_probs=[-0.1, -0.2]), Segment([], by_model=False, reward=3.0)]
    sample = Sample(PROMPT, segments, "stop", scores={"overall": 0.0})
    assert (sample.rewards, sample.reward) == ([0.0, 3.0], 3.0)


@pytest.mark.parametrize("mask", [[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 0], []])
def test_tokens_are_cut_where_their_author_changes(mask: list[int]) -> None:
    ids = [7, 8, 9][: len(mask)]
    segments = segments_of(ids, mask)
    sample = Sample(PROMPT, segments, "stop")
    assert (sample.ids, sample.mask) == (ids, mask)
    assert all(a.by_model != b.by_model for a, b in itertools.pairwise(segments))
