"""avg@k, pass@k and maj@k against brute force, and intervals against what they promise."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from whet.evals.statistics import Attempt, estimates, intervals, majority


def attempts(*marks: str) -> list[Attempt]:
    """`x1` is the answer x, and right."""
    return [Attempt(float(mark[1]), None if mark[0] == "-" else mark[0], {}) for mark in marks]


QUESTIONS = [
    attempts("a1", "a1", "b0", "c0"),
    attempts("a0", "b0", "b0", "-0"),
    attempts("a1", "b0", "b0", "a1"),
    attempts("-0", "-0", "-0", "-0"),
]


def test_against_every_subset() -> None:
    found = estimates(QUESTIONS, draws=10)
    assert found["avg@4"].mean == pytest.approx(np.mean([0.5, 0, 0.5, 0]))
    for k in (1, 2, 4):
        brute = [np.mean([any(a.correct for a in some) for some in combinations(each, k)]) for each in QUESTIONS]
        assert found[f"pass@{k}"].mean == pytest.approx(np.mean(brute))
    assert found["maj@4"].mean == pytest.approx(np.mean([1, 0, 0.5, 0]))  # the third is a draw
    assert "maj@2" not in found


def test_majority_of_subsets() -> None:
    # of a a b, any two: aa is right, ab and ab are draws
    assert majority(attempts("a1", "a1", "b0"), 2) == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert majority(attempts("a0", "-0", "-1"), 3) == 0  # who says nothing does not vote


def test_majority_of_many_is_drawn_and_repeatable() -> None:
    many = attempts(*["a1"] * 24, *["b0"] * 8)
    assert majority(many, 8) == majority(many, 8)
    assert 0.9 < majority(many, 8) <= 1


def test_questions_with_different_numbers_of_samples() -> None:
    found = estimates([attempts("a1", "a0", "a1"), attempts("a0", "a1")], draws=10)
    assert set(found) == {"avg@2", "pass@1", "pass@2"}
    assert found["avg@2"].mean == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_scores_that_only_some_questions_have() -> None:
    found = estimates([[Attempt(1, None, {"f1": 0.5})], [Attempt(0, None, {})]], draws=10)
    assert found["f1"].mean == 0.5
    assert found["f1"].low is None


def test_one_question_has_no_interval() -> None:
    assert estimates([attempts("a1")])["avg@1"].low is None


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = random.Random(1)
    inside = 0
    for _ in range(200):
        values = [float(rng.random() < 0.3) for _ in range(80)]
        found = intervals({"x": values}, 200, 0.9)["x"]
        inside += found.low <= 0.3 <= found.high  # type: ignore[operator]
    assert 0.84 < inside / 200 < 0.96


def test_intervals_are_repeatable_and_widen_with_confidence() -> None:
    values = [float(i % 3 == 0) for i in range(50)]
    narrow, wide = (intervals({"x": values}, 500, level)["x"] for level in (0.5, 0.99))
    assert narrow == intervals({"x": values}, 500, 0.5)["x"]
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high  # type: ignore[operator]
