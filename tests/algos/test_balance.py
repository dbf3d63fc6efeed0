"""Partitions, and the bootstrap of validation scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.algos.balance import partitions, workload
from whet.algos.bootstrap import bootstrap_metrics, sizes
from whet.errors import UserError


@settings(max_examples=60, deadline=None)
@given(costs=st.lists(st.integers(0, 500), min_size=1, max_size=24), parts=st.integers(1, 6), equal=st.booleans())
def test_every_row_is_in_one_part(costs, parts, equal):
    if len(costs) < parts or (equal and len(costs) % parts):
        with pytest.raises(UserError, match="cannot be split"):
            partitions(costs, parts, equal)
        return
    found = partitions(costs, parts, equal)
    assert len(found) == parts
    assert sorted(itertools.chain(*found)) == list(range(len(costs)))
    assert all(part == sorted(part) for part in found)
    if equal:
        assert {len(part) for part in found} == {len(costs) // parts}
    # No part is heavier than an even share and the largest row together.
    heaviest = max(sum(costs[i] for i in part) for part in found)
    assert heaviest <= math.ceil(sum(costs) / parts) + max(costs)


def test_far_better_than_taking_rows_in_order():
    costs = [workload(length) for length in np.random.RandomState(0).randint(10, 4000, size=64).tolist()]
    totals = [sum(costs[i] for i in part) for part in partitions(costs, 8, equal_size=True)]
    in_order = [sum(costs[i : i + 8]) for i in range(0, 64, 8)]
    assert max(totals) - min(totals) < 0.1 * (max(in_order) - min(in_order))


def test_two_parts_of_a_known_case():
    # Differencing 8, 7, 6, 5, 4 leaves 2 (16 against 14), the textbook's example where the best is 0.
    totals = [sum([8, 7, 6, 5, 4][i] for i in part) for part in partitions([8, 7, 6, 5, 4], 2, equal_size=False)]
    assert sorted(totals) == [14, 16]


def test_bootstrap_as_a_plain_loop():
    rng = np.random.RandomState(3)
    prompts, scores, answers = np.repeat(["a", "b", "c"], 6), rng.rand(18).round(2), rng.choice(list("xyz"), 18)
    ours = bootstrap_metrics(prompts.tolist(), scores.tolist(), answers.tolist())
    assert [name for name in ours if name.startswith("maj") and name.endswith("mean")] == [
        "maj@2/mean",
        "maj@4/mean",
        "maj@6/mean",
    ]
    for n in (2, 4, 6):
        best, majority = [], []
        for first in (0, 6, 12):
            draws = np.random.RandomState(42)
            drawn = [draws.choice(6, size=n, replace=True) for _ in range(1000)]
            best.append(np.mean([scores[first + rows].max() for rows in drawn]))
            votes = []
            for rows in drawn:
                said = [answers[first + row] for row in rows]
                modal = max(dict.fromkeys(said), key=said.count)
                votes.append(scores[first + rows[said.index(modal)]])
            majority.append(np.mean(votes))
        assert ours[f"best@{n}/mean"] == pytest.approx(np.mean(best))
        assert ours[f"maj@{n}/mean"] == pytest.approx(np.mean(majority))
    assert ours["mean@6"] == pytest.approx(scores.mean())


def test_bootstrap_leaves_other_random_numbers_alone_and_single_samples_have_only_a_mean():
    np.random.seed(7)
    expected = np.random.RandomState(7).rand()
    assert bootstrap_metrics(["a", "b"], [1.0, 0.0]) == {"mean@1": 0.5}
    bootstrap_metrics("aabb", [1.0, 0.0, 1.0, 1.0])
    assert np.random.rand() == expected
    assert [sizes(n) for n in (1, 2, 3, 4, 6, 8)] == [[], [2], [2, 3], [2, 4], [2, 4, 6], [2, 4, 8]]
