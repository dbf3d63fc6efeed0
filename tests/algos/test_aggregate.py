from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.algos.aggregate import MODES, Aggregator, aggregate, count
from whet.errors import UserError

LOSS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 8 / 3),
        ("token", 8 / 3),
        ("token-sum", 8.0),
        ("seq-mean-token-sum", 4.0),  # the third response has no token and does not count
        ("seq-mean-token-mean", 3.0),
        ("seq", 3.0),
        ("seq-mean-token-sum-norm", 0.4),
    ],
)
def test_modes_by_hand(mode: str, expected: float) -> None:
    assert float(aggregate(LOSS, MASK, mode, count(MASK, horizon=10))) == pytest.approx(expected)


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_outside_the_mask_has_no_effect(mode: str) -> None:
    whole = count(MASK, horizon=3)
    junk = torch.tensor([math.inf, -math.inf, math.nan], dtype=torch.float64)
    for value in junk:
        loss = torch.where(MASK.bool(), LOSS, value).requires_grad_()
        result = aggregate(loss, MASK, mode, whole)
        result.backward()
        assert float(result.detach()) == float(aggregate(LOSS, MASK, mode, whole))
        assert torch.all(loss.grad[MASK == 0] == 0)
        assert torch.isfinite(loss.grad).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_mini_batch_without_tokens_is_zero(mode: str) -> None:
    mask = torch.zeros(2, 3)
    loss = torch.ones(2, 3, requires_grad=True)
    result = aggregate(loss, mask, mode, count(mask, horizon=3))
    result.backward()
    assert float(result.detach()) == 0.0
    assert torch.all(loss.grad == 0)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), mode=st.sampled_from(MODES), rows=st.integers(1, 9), width=st.integers(1, 6))
def test_any_cut_into_micro_batches_adds_up(data: st.DataObject, mode: str, rows: int, width: int) -> None:
    bits = st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows)
    mask = torch.tensor(data.draw(bits), dtype=torch.float32)
    owner = data.draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows))
    x = torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(rows * 7 + width))
    whole = Aggregator(mode, count(mask, horizon=5))

    at_once = x.clone().requires_grad_()
    total = whole(at_once.exp(), mask)
    total.backward()
    in_parts, parts = x.clone().requires_grad_(), 0.0
    for micro in set(owner):
        chosen = [i for i in range(rows) if owner[i] == micro]
        shortest = max(1, int(mask[chosen].sum(dim=0).nonzero().max()) + 1 if mask[chosen].any() else 1)
        part = whole(in_parts[chosen, :shortest].exp(), mask[chosen, :shortest])
        part.backward()
        parts += float(part.detach())
    assert parts == pytest.approx(float(total.detach()), rel=1e-10, abs=1e-10)
    torch.testing.assert_close(in_parts.grad, at_once.grad, atol=1e-10, rtol=1e-10)


def test_token_mean_ignores_the_mode_and_carries_no_gradient() -> None:
    values = torch.ones(3, 3, requires_grad=True)
    mean = Aggregator("token-sum", count(MASK, horizon=3)).token_mean(values, MASK)
    assert float(mean) == 1.0
    assert not mean.requires_grad


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(UserError, match="loss_avg_mode=mean"):
        aggregate(LOSS, MASK, "mean", count(MASK, horizon=3))
