"""Routing and grouped products against torch's own operations, one expert at a time."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE

from whet.kernels import routing
from whet.kernels.glu import glu
from whet.kernels.grouped import grouped_glu, grouped_linear, tile_rows
from whet.kernels.grouped_gradients import grouped_outer
from whet.kernels.routing import Groups, combine, group, route


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def _experts(N: int, E: int, K: int) -> torch.Tensor:
    """Experts of which some have many pairs and one has none."""
    scores = _random(N, E, seed=5) + torch.linspace(2, 0, E, device=DEVICE)
    scores[:, E // 2] = float("-inf")
    return scores.topk(K, dim=-1).indices.int()


@pytest.mark.parametrize("normalised", [False, True])
def test_routes_as_the_router_of_transformers(normalised: bool) -> None:
    logits = _random(11, 6)
    probabilities, expected = logits.softmax(-1).topk(3)
    expected_weights = probabilities / probabilities.sum(-1, keepdim=True) if normalised else probabilities
    experts, weights = route(logits, 3, normalised)
    assert torch.equal(experts.long(), expected)
    torch.testing.assert_close(weights, expected_weights)


def test_known_experts_are_taken_and_weighted_by_the_logits() -> None:
    logits = _random(4, 6)
    known = torch.tensor([[5, 0], [-1, -1], [1, 2], [-1, -1]], device=DEVICE, dtype=torch.int32)
    experts, weights = route(logits, 2, True, known)
    chosen = torch.where(known >= 0, known, logits.topk(2).indices.int())
    assert torch.equal(experts, chosen)
    expected = logits.softmax(-1).gather(1, chosen.long())
    torch.testing.assert_close(weights, expected / expected.sum(-1, keepdim=True))


@pytest.mark.parametrize("few", [0, 10_000])
def test_pairs_are_sorted_by_expert(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_FEW", few)  # by torch.sort, and by the kernel
    monkeypatch.setattr(routing, "_BLOCK", 16)
    experts = _experts(21, 7, 2)
    groups = group(experts, 7, 4)
    assert groups.pairs_S.tolist() == experts.flatten().sort(stable=True).indices.tolist()
    ends = experts.flatten().bincount(minlength=7).cumsum(0).tolist()
    assert groups.ends_E.tolist() == ends
    tiles = [tuple(tile) for tile in groups.tiles_3T.t().tolist() if tile[0] >= 0]
    starts = [0, *ends[:-1]]
    assert tiles == [
        (e, at, min(at + 4, ends[e])) for e in range(7) for at in range(starts[e], ends[e], 4)
    ]  # no pair is missing, none is in two tiles


@pytest.mark.parametrize(("N", "E", "rows"), [(1, 12, 4), (3, 12, 2), (9, 3, 2)])
def test_few_pairs_have_few_tiles(N: int, E: int, rows: int) -> None:
    groups = group(_experts(N, E, 2), E, rows)
    assert groups.tiles_3T.shape[1] == 2 * N // rows + min(E, 2 * N)
    _, first, stop = groups.tiles_3T[:, groups.tiles_3T[0] >= 0]
    assert sum((last - at for at, last in zip(first.tolist(), stop.tolist()))) == 2 * N
    assert torch.equal(stop[:-1], first[1:])


def _reference(x: torch.Tensor, weight: torch.Tensor, experts: torch.Tensor, groups: Groups) -> torch.Tensor:
    chosen = experts.flatten()[groups.pairs_S.long()].long()
    return torch.einsum("si,soi->so", x, weight[chosen])


@pytest.mark.parametrize(("gather", "scatter"), [(True, False), (False, True)])
def test_a_grouped_product_is_every_experts_own(gather: bool, scatter: bool) -> None:
    N, E, K, OUT, IN = 23, 5, 2, 70, 40
    experts = _experts(N, E, K)
    groups = group(experts, E, 16)
    token = groups.pairs_S.long() // K
    x, weight = _random(N, IN, seed=1), _random(E, OUT, IN, seed=2)
    rows = x[token]
    expected = _reference(rows, weight, experts, groups)
    if scatter:
        expected = torch.empty_like(expected).index_copy_(0, groups.pairs_S.long(), expected)
    found = grouped_linear(x if gather else rows, weight, groups, gather, scatter)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    back = grouped_linear(_random(N * K, OUT, seed=3), weight.transpose(1, 2), groups)
    expected = _reference(_random(N * K, OUT, seed=3), weight.transpose(1, 2), experts, groups)
    torch.testing.assert_close(back, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("activation", ["silu", "gelu_pytorch_tanh"])
def test_a_gated_unit_behind_the_product_changes_nothing(activation: str) -> None:
    experts = _experts(23, 5, 2)
    groups = group(experts, 5, 16)
    x, weight = _random(23, 40, seed=1), _random(5, 140, 40, seed=2)
    expected = glu(grouped_linear(x, weight, groups, gather=True), activation)
    torch.testing.assert_close(grouped_glu(x, weight, groups, activation), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("N", [3, 41])
def test_rows_in_8_bits_are_multiplied_with_their_scales(N: int) -> None:
    groups = group(_experts(N, 5, 2), 5, tile_rows(2 * N, 5, torch.float8_e4m3fn))
    x, weight = _random(N, 48, seed=1), _random(5, 64, 48, seed=2)
    scales = _random(N, 1, seed=3).abs(), _random(5 * 64, 1, seed=4).abs()
    narrow = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
    wide_x, wide_weight = (each.float() for each in narrow)
    wide_x, wide_weight = wide_x * scales[0], wide_weight * scales[1].view(5, 64, 1)
    expected = grouped_linear(wide_x, wide_weight, groups, gather=True)
    found = grouped_linear(*narrow, groups, True, False, scales)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))
    act = grouped_glu(*narrow, groups, "silu", scales).float()
    torch.testing.assert_close(act, glu(found, "silu").float(), rtol=2e-2, atol=2e-2 * float(act.abs().max()))


@pytest.mark.parametrize("add", [False, True])
def test_gradients_of_weights_sum_over_an_experts_pairs(add: bool) -> None:
    N, E, K, OUT, IN = 23, 5, 2, 40, 33
    experts = _experts(N, E, K)
    groups = group(experts, E, 16)
    token, chosen = groups.pairs_S.long() // K, experts.flatten()[groups.pairs_S.long()].long()
    left, right, before = _random(N * K, OUT, seed=1), _random(N, IN, seed=2), _random(E, OUT, IN, seed=3)
    expected = before.clone() if add else torch.zeros_like(before)
    expected.index_add_(0, chosen, left[:, :, None] * right[token][:, None, :])
    found = grouped_outer(left, right, groups, before.clone(), gather_right=True, add=add)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_pairs_of_a_token_are_added_with_their_weights() -> None:
    pairs, weights = _random(6, 40), _random(3, 2, seed=1)
    torch.testing.assert_close(combine(pairs, weights, 2), (pairs.view(3, 2, 40) * weights[..., None]).sum(1))
    torch.testing.assert_close(combine(pairs, None, 2), pairs.view(3, 2, 40).sum(1))
