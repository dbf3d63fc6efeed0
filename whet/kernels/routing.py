"""Routing of tokens to experts: the K likeliest experts of each token and their weights, and the pairs by expert.

A pair is a token and one of its experts: pair p of N·K is token p // K. Grouped products (`grouped.py`) take the pairs
of an expert as consecutive rows, in tiles of a fixed number of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096  # pairs that a program sorts at a time
_FEW = 16384  # pairs up to which one kernel sorts them: every expert's program reads them all


class Groups(NamedTuple):
    """S = N·K pairs sorted by expert, those of an expert in the order of their tokens."""

    pairs_S: Tensor  # int32
    ends_E: Tensor  # int32; the pairs of expert e end before this place, and begin where those of e - 1 end
    tiles_3T: Tensor  # int32; expert, first place and end of each tile; the expert is -1 where there is none
    K: int
    rows: int  # of a tile


@triton.jit
def _route(
    logits_NE,
    known_NK,
    experts_NK,
    weights_NK,
    E,
    K: tl.constexpr,
    KNOWN: tl.constexpr,
    NORMALISED: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK_E)
    k = tl.arange(0, BLOCK_K)
    z = tl.load(logits_NE + row * E + e, mask=e < E, other=float("-inf")).to(tl.float32)
    power = tl.exp(z - tl.max(z, axis=0))
    left = power / tl.sum(power, axis=0)
    probability = left
    chosen_K = tl.zeros((BLOCK_K,), tl.int32)
    weight_K = tl.zeros((BLOCK_K,), tl.float32)
    for i in tl.static_range(K):
        # The first of equals, as torch.topk has it for most inputs; an expert is taken once.
        best = tl.min(tl.where((left == tl.max(left, axis=0)) & (e < E), e, BLOCK_E), axis=0)
        left = tl.where(e == best, -1.0, left)
        if KNOWN:
            told = tl.load(known_NK + row * K + i).to(tl.int32)
            best = tl.where(told >= 0, told, best)
        chosen_K = tl.where(k == i, best, chosen_K)
        weight_K = tl.where(k == i, tl.sum(tl.where(e == best, probability, 0.0), axis=0), weight_K)
    if NORMALISED:
        weight_K = weight_K / tl.sum(weight_K, axis=0)
    tl.store(experts_NK + row * K + k, chosen_K, mask=k < K)
    tl.store(weights_NK + row * K + k, weight_K.to(weights_NK.dtype.element_ty), mask=k < K)


def route(logits_NE: Tensor, K: int, normalised: bool, known_NK: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Experts (N, K) int32 of every token, the likeliest first, and their weights (N, K) in the dtype of the logits.

    Weights are probabilities over all experts, `normalised` divided by their sum. Where `known_NK` is not negative it
    says which experts to take; a row of it is negative as a whole or not at all.
    """
    N, E = logits_NE.shape
    logits_NE = logits_NE.contiguous()
    experts_NK = torch.empty(N, K, dtype=torch.int32, device=logits_NE.device)
    weights_NK = torch.empty(N, K, dtype=logits_NE.dtype, device=logits_NE.device)
    if N:
        _route[(N,)](
            logits_NE,
            experts_NK if known_NK is None else known_NK.contiguous(),
            experts_NK,
            weights_NK,
            E,
            K=K,
            KNOWN=known_NK is not None,
            NORMALISED=normalised,
            BLOCK_E=max(16, triton.next_power_of_2(E)),
            BLOCK_K=triton.next_power_of_2(K),
            num_warps=1,
        )
    return experts_NK, weights_NK


@triton.jit
def _note_tiles(tiles_3T, T, expert, first, stop, ROWS: tl.constexpr):
    """Write down an expert's tiles, from number first // ROWS + min(expert, first) on, whatever others have.

    Earlier experts with pairs are at most `expert` and at most `first`, and each wastes less than one tile. So no
    number is taken twice, and all are below S // ROWS + min(E, S).
    """
    t = tl.arange(0, 32)
    number = first // ROWS + tl.minimum(expert, first)
    count = tl.cdiv(stop - first, ROWS)
    for start in range(0, count, 32):
        here = tiles_3T + number + start + t
        begin = first + (start + t) * ROWS
        real = begin < stop
        tl.store(here, tl.zeros((32,), tl.int32) + expert, mask=real)
        tl.store(here + T, begin, mask=real)
        tl.store(here + 2 * T, tl.minimum(begin + ROWS, stop), mask=real)


@triton.jit(do_not_specialize=["S", "T"])
def _group(experts_S, pairs_S, ends_E, tiles_3T, S, T, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    expert = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    # 1. Pairs of earlier experts, and of this one.
    before = 0
    own = 0
    for start in range(0, S, BLOCK):
        chosen = tl.load(experts_S + start + i, mask=start + i < S, other=2**30)
        before += tl.sum((chosen < expert).to(tl.int32), axis=0)
        own += tl.sum((chosen == expert).to(tl.int32), axis=0)
    tl.store(ends_E + expert, before + own)
    _note_tiles(tiles_3T, T, expert, before, before + own, ROWS)
    # 2. Each of its pairs goes behind those that come earlier.
    for start in range(0, S, BLOCK):
        chosen = tl.load(experts_S + start + i, mask=start + i < S, other=2**30)
        here = (chosen == expert).to(tl.int32)
        place = before + tl.cumsum(here, axis=0) - here
        tl.store(pairs_S + place, start + i, mask=here != 0)
        before += tl.sum(here, axis=0)


@triton.jit(do_not_specialize=["T"])
def _tiles_of(ends_E, tiles_3T, T, ROWS: tl.constexpr):
    expert = tl.program_id(0)
    first = tl.load(ends_E + expert - 1, mask=expert > 0, other=0)
    _note_tiles(tiles_3T, T, expert, first, tl.load(ends_E + expert), ROWS)


def group(experts_NK: Tensor, E: int, rows: int) -> Groups:
    """Sort the pairs by expert, and cut those of an expert into tiles of so many `rows`.

    Nothing is read by the host, so that a CUDA graph can hold it.
    """
    N, K = experts_NK.shape
    S, T, device = N * K, N * K // rows + min(E, N * K), experts_NK.device
    tiles_3T = torch.full((3, T), -1, dtype=torch.int32, device=device)
    if S > _FEW:
        chosen_S, order_S = torch.sort(experts_NK.flatten(), stable=True)
        pairs_S = order_S.int()
        ends_E = torch.searchsorted(chosen_S, torch.arange(E, device=device, dtype=torch.int32), right=True).int()
        _tiles_of[(E,)](ends_E, tiles_3T, T, ROWS=rows, num_warps=1)
    else:
        pairs_S = torch.empty(S, dtype=torch.int32, device=device)
        ends_E = torch.empty(E, dtype=torch.int32, device=device) if S else experts_NK.new_zeros(E)
        if S:
            block = min(_BLOCK, triton.next_power_of_2(S))
            warps = max(1, min(8, block // 256))
            _group[(E,)](experts_NK, pairs_S, ends_E, tiles_3T, S, T, ROWS=rows, BLOCK=block, num_warps=warps)
    return Groups(pairs_S, ends_E, tiles_3T, K, rows)


@triton.jit
def _combine(pairs_SH, weights_NK, out_NH, H, K: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):
        part = tl.load(pairs_SH + (row * K + k) * H + cols, mask=cols < H, other=0.0).to(tl.float32)
        if WEIGHTED:
            part *= tl.load(weights_NK + row * K + k).to(tl.float32)
        total += part
    tl.store(out_NH + row * H + cols, total.to(out_NH.dtype.element_ty), mask=cols < H)


def combine(pairs_SH: Tensor, weights_NK: Tensor | None, K: int) -> Tensor:
    """Sum over the pairs of each token (N, H), weighted or not; the pairs are in the order of their numbers."""
    S, H = pairs_SH.shape
    out_NH = pairs_SH.new_empty(S // K, H)
    if S:
        block = min(1024, triton.next_power_of_2(H))
        weights = pairs_SH if weights_NK is None else weights_NK.contiguous()
        _combine[(S // K, triton.cdiv(H, block))](
            pairs_SH, weights, out_NH, H, K=K, WEIGHTED=weights_NK is not None, BLOCK=block, num_warps=4
        )
    return out_NH
