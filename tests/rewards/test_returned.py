"""What a reward function may return."""

from decimal import Decimal

import numpy as np
import pytest

from whet.rewards.returned import BadResultError, read_batch, read_scores, show


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value", [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), np.array([1.0]), Decimal(1)]
)
def test_numbers_of_every_kind_are_overall(value):
    for scores in (read_scores(value), read_scores({"overall": value})):
        assert scores == {"overall": 1.0}
        assert type(scores["overall"]) is float


def test_other_numbers_are_kept_and_the_rest_dropped():
    value = {"overall": 1, "accuracy": False, "why": "because", "raw": [1], 3: 4.0, "bad": float("nan"), "none": None}
    assert read_scores(value) == {"overall": 1.0, "accuracy": 0.0}


def test_verl_score_and_acc():
    assert read_scores({"score": 0.5, "acc": True, "pred": "4"}, verl=True) == {
        "overall": 0.5,
        "acc": 1.0,
        "accuracy": 1.0,
    }


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1.0",
        [1.0],
        {},
        {"score": 1.0},
        {"overall": None},
        {"overall": "1"},
        float("nan"),
        {"overall": float("inf")},
        10**400,
        1j,
        np.zeros(3),
        Nasty(),
        {"overall": Nasty()},
        object(),
    ],
)
def test_what_is_no_score(value):
    with pytest.raises(BadResultError, match="it returned"):
        read_scores(value)


@pytest.mark.parametrize("value", [None, 1.0, "ab", {"overall": 1, "b": 2}, [1], [1, 2, 3], (x for x in [1, 2])])
def test_what_is_no_batch_of_two(value):
    with pytest.raises(BadResultError, match="it returned"):
        read_batch(value, 2)


def test_lists_tuples_and_arrays_are_batches():
    for value in ([1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0])):
        assert [read_scores(item)["overall"] for item in read_batch(value, 2)] == [1.0, 2.0]


def test_showing_is_short_whatever_comes():
    assert len(show(["x" * 10**6] * 1000)) < 3000
    assert "Nasty" in show(Nasty())
