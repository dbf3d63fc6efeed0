"""Every loss in every mode adds up over any cut of its mini-batch: the gradient does not depend on micro-batching."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whet.algos import find_policy_loss, preparation_of
from whet.algos.aggregate import MODES, Aggregator, count
from whet.algos.quirks import quirks
from whet.algos.registry import LossInputs
from whet.algos.value_loss import value_loss
from whet.config.schema.actor import LOSSES, ActorConfig

# Bounds at which a good part of random tokens is clipped, drawn or penalised.
CONFIG = ActorConfig(
    clip_ratio_low=0.2,
    clip_ratio_high=0.3,
    clip_ratio_dual=1.5,
    clip_cov_ratio=0.2,
    clip_cov_lb=0.05,
    kl_cov_ratio=0.2,
    dppo_ratio_max=1.5,
)
Cut = list[tuple[list[int], int]]  # rows of each micro-batch and its width


def _mask(data: st.DataObject, rows: int, width: int) -> Tensor:
    """Tool tokens between turns, padding at the end, whole rows without a token."""
    bits = st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows)
    return torch.tensor(data.draw(bits), dtype=torch.float32)


def _cut(data: st.DataObject, mask: Tensor) -> Cut:
    """Rows shared out at random; each micro-batch is as wide as its last token wants."""
    rows = len(mask)
    owner = data.draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows))
    parts = [[i for i in range(rows) if owner[i] == micro] for micro in sorted(set(owner))]
    return [(part, max(1, *(int(t) + 1 for t in mask[part].nonzero()[:, 1]), 1)) for part in parts]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES.names)
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_any_cut_gives_the_same_loss_gradient_and_metrics(name: str, mode: str, data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 6))
    mask = _mask(data, rows, width)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    new, old, advantages = torch.randn(3, rows, width, dtype=torch.float64, generator=generator) * 0.4
    new, old = -0.7 - new, -0.7 - old
    weights = None
    if data.draw(st.booleans()):
        weights = torch.rand(rows, width, dtype=torch.float64, generator=generator) * 2
    match = data.draw(st.sampled_from(["whet", "verl", "easyr1", "or1"]))
    aggregate = Aggregator(mode, count(mask, horizon=8), quirks(match))
    prepare = preparation_of(name)
    groups = torch.arange(rows) % 3  # whose members are cut apart, too
    prepared = prepare(LossInputs(new, old, advantages, mask, weights, groups_B=groups), CONFIG) if prepare else {}

    def run(cut: Cut) -> tuple[float, Tensor, dict[str, float]]:
        log_probs = new.clone().requires_grad_()
        total, sums = 0.0, dict[str, float]()
        for part, T in cut:
            inputs = LossInputs(
                log_probs[part, :T],
                old[part, :T],
                advantages[part, :T],
                mask[part, :T],
                None if weights is None else weights[part, :T],
                {key: values[part, :T] for key, values in prepared.items()},
            )
            loss, metrics = find_policy_loss(name)(inputs, CONFIG, aggregate)
            loss.backward()
            total += float(loss.detach())
            for key, value in metrics.items():
                sums[key] = sums.get(key, 0.0) + float(value)
        return total, log_probs.grad, sums

    whole_loss, whole_grad, whole_metrics = run([(list(range(rows)), width)])
    loss, grad, metrics = run(_cut(data, mask))
    assert loss == pytest.approx(whole_loss, rel=1e-10, abs=1e-10)
    torch.testing.assert_close(grad, whole_grad, atol=1e-10, rtol=1e-10)
    assert metrics == pytest.approx(whole_metrics, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_the_value_loss_adds_up_too(mode: str, data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 6))
    mask = _mask(data, rows, width)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    new, old, returns = torch.randn(3, rows, width, dtype=torch.float64, generator=generator)
    aggregate = Aggregator(mode, count(mask, horizon=8))

    def run(cut: Cut) -> tuple[float, Tensor]:
        values, total = new.clone().requires_grad_(), 0.0
        for part, T in cut:
            loss, _ = value_loss(values[part, :T], old[part, :T], returns[part, :T], mask[part, :T], 0.5, aggregate)
            loss.backward()
            total += float(loss.detach())
        return total, values.grad

    whole_loss, whole_grad = run([(list(range(rows)), width)])
    loss, grad = run(_cut(data, mask))
    assert loss == pytest.approx(whole_loss, rel=1e-10, abs=1e-10)
    torch.testing.assert_close(grad, whole_grad, atol=1e-10, rtol=1e-10)
