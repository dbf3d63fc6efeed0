"""VPPO's shaping: which tokens are chosen and how much each response weighs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whet.algos.shaping import (
    Weights,
    bounded,
    relative_dependency,
    response_dependency,
    response_weights,
    token_dependency,
    top_tokens,
)


def weigh(dependency: Tensor, counted: Tensor, least: float) -> Weights:
    return response_weights(relative_dependency(dependency, counted), counted, least)


def test_dependency_is_the_k3_estimate_between_0_and_10() -> None:
    masked, plain = torch.tensor([-1.0, -2.5, -0.3, 0.0]), torch.tensor([-1.0, -0.5, -0.7, -50.0])
    expected = [0.0, math.exp(-2) + 2 - 1, math.exp(0.4) - 0.4 - 1, 10.0]
    assert token_dependency(masked, plain).tolist() == pytest.approx(expected, abs=1e-6)
    assert bounded(torch.tensor([-1e-7, 3.0, 70.0])).tolist() == [0.0, 3.0, 10.0]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_largest_values_of_each_row_are_chosen(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    bits = st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows)
    mask = torch.tensor(data.draw(bits)).float()
    values = torch.tensor(  # few distinct values, so that many are equal
        data.draw(st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=rows, max_size=rows))
    ).float()
    hundredths = data.draw(st.integers(1, 100))
    chosen = top_tokens(values, mask, hundredths / 100)
    for b in range(rows):
        inside = [t for t in range(width) if mask[b, t]]
        count = -(-len(inside) * hundredths // 100)
        best = sorted(inside, key=lambda t: (-float(values[b, t]), t))[:count]  # of equal values the first
        assert sorted(best) == chosen.mask_BT[b].nonzero()[:, 0].tolist()
        assert int(chosen.counts_B[b]) == count
        assert float(chosen.thresholds_B[b]) == (float(values[b, best[-1]]) if best else 0.0)


def test_counts_are_exact_unless_single_precision_is_asked_for() -> None:
    for share, single in ((0.2, 20), (0.4, 40), (0.3, 31), (0.15, 16)):  # the last two round up in 32 bits
        mask = torch.ones(1, 100)
        assert int(top_tokens(mask, mask, share).counts_B) == round(share * 100)
        assert int(top_tokens(mask, mask, share, single_precision=True).counts_B) == single


def test_shaping_does_not_depend_on_the_order_of_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    plain, masked = -torch.rand(2, 5, 7, generator=generator) * 3
    mask = (torch.arange(7) < torch.tensor([[7], [3], [1], [5], [0]])).float()
    S, order = token_dependency(masked, plain), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(top_tokens(S[order], mask[order], 0.4).mask_BT, top_tokens(S, mask, 0.4).mask_BT[order])
    s, counted = response_dependency(S, mask), mask.any(dim=1)
    ours, other = weigh(s, counted, 0.9), weigh(s[order], counted[order], 0.9)
    torch.testing.assert_close(other.weights_B, ours.weights_B[order])
    # An empty response does not count: the others' weights are 1 on average, from 0.9 up to the largest.
    assert float(ours.weights_B[counted].mean()) == pytest.approx(1.0)
    assert float(ours.weights_B.min()) == pytest.approx(0.9)
    assert float(ours.weights_B.max()) == pytest.approx(ours.most)
    assert float(ours.weights_B[4]) == 1.0


def test_responses_that_do_not_differ_or_count_weigh_1() -> None:
    everyone = torch.tensor([True, True, True])
    assert weigh(torch.tensor([0.3, 0.3, 0.3]), everyone, 0.8).weights_B.tolist() == [1.0, 1.0, 1.0]
    assert weigh(torch.tensor([0.3]), torch.tensor([True]), 0.8) == Weights(pytest.approx(torch.ones(1)), 1.0)
    alone = weigh(torch.tensor([0.3, 0.1, 0.9]), torch.tensor([False, True, False]), 0.8)
    assert alone.weights_B.tolist() == [1.0, 1.0, 1.0]
    two = weigh(torch.tensor([0.0, 0.1, 0.9]), torch.tensor([False, True, True]), 0.8)
    assert two.weights_B.tolist() == pytest.approx([1.0, 0.8, 1.2])
    assert response_weights(torch.tensor([0.5]), torch.tensor([False]), 0.8).weights_B.tolist() == [1.0]
