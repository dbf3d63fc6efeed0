"""Grouped products: every expert's weight times the rows of its pairs, and the gradients of those weights.

Pairs are sorted by expert (`routing.Groups`), and the host does not know how many an expert has: programs find theirs
from the ends of the groups, and those that find nothing are idle. A row's bits depend on its expert's weight and on
the row alone for a given tile, which is chosen by the number of pairs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.routing import Groups


@triton.jit
def _linear(
    x,
    weight,
    out,
    pairs,
    ends,
    stride_x,
    stride_e,
    stride_o,
    stride_i,
    E,
    OUT,
    IN: tl.constexpr,
    K: tl.constexpr,
    GATHER: tl.constexpr,
    SCATTER: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_M pairs of one expert and BLOCK_N columns of its output."""
    columns = tl.cdiv(OUT, BLOCK_N)
    tile = tl.program_id(0) // columns
    # 1. The expert whose pairs this tile has: experts have ceil(pairs / BLOCK_M) tiles each, one after the other.
    e = tl.arange(0, BLOCK_E)
    end_E = tl.load(ends + e, mask=e < E, other=0)
    start_E = tl.load(ends + e - 1, mask=(e > 0) & (e < E), other=0)
    tiles_E = tl.cdiv(tl.maximum(end_E - start_E, 0), BLOCK_M)
    before_E = tl.cumsum(tiles_E, axis=0) - tiles_E
    mine_E = (before_E <= tile) & (tile < before_E + tiles_E)
    expert = tl.sum(tl.where(mine_E, e, 0), axis=0).to(tl.int64)
    first = tl.sum(tl.where(mine_E, start_E + (tile - before_E) * BLOCK_M, 0), axis=0)
    stop = tl.sum(tl.where(mine_E, end_E, 0), axis=0)
    if first < stop:
        # 2. Rows of the input and of the output (M,), and columns (N,).
        place = first + tl.arange(0, BLOCK_M)
        real = place < stop
        pair = tl.load(pairs + place, mask=real, other=0)
        row = (pair // K if GATHER else place).to(tl.int64)
        n = (tl.program_id(0) % columns) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        # 3. The product, (M, N) in fp32.
        acc_MN = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        x_at = x + row[:, None] * stride_x + k[None, :]
        w_at = weight + expert * stride_e + k[:, None] * stride_i + n[None, :] * stride_o
        for step in range(tl.cdiv(IN, BLOCK_K)):
            inside = k < IN - step * BLOCK_K
            x_MK = tl.load(x_at, mask=real[:, None] & inside[None, :], other=0.0)
            w_KN = tl.load(w_at, mask=inside[:, None] & (n < OUT)[None, :], other=0.0)
            acc_MN = tl.dot(x_MK, w_KN, acc_MN, input_precision="ieee")
            x_at += BLOCK_K
            w_at += BLOCK_K * stride_i
        # 4. Back to the pair's own row, or left in the order of the groups.
        to = (pair if SCATTER else place).to(tl.int64)
        kept = real[:, None] & (n < OUT)[None, :]
        tl.store(out + to[:, None] * OUT + n[None, :], acc_MN.to(out.dtype.element_ty), mask=kept)


def grouped_linear(
    x: Tensor, weight_EOI: Tensor, groups: Groups, gather: bool = False, scatter: bool = False
) -> Tensor:
    """Rows (S, OUT): each pair's row of x times its expert's weight, in the order of the groups.

    `gather` takes rows of tokens (N, IN) instead of pairs in the order of the groups; `scatter` returns rows in the
    order of the pairs' numbers. The weight may be a transposed view.
    """
    (E, OUT, IN), S = weight_EOI.shape, len(groups.pairs_S)
    x = x if x.stride(1) == 1 else x.contiguous()
    out = x.new_empty(S, OUT)
    if S:
        sizes = _tiles(S, E, x.dtype)
        tiles = S // sizes["BLOCK_M"] + min(E, S)  # no expert wastes more than one tile
        _linear[(tiles * triton.cdiv(OUT, sizes["BLOCK_N"]),)](
            x,
            weight_EOI,
            out,
            groups.pairs_S,
            groups.ends_E,
            x.stride(0),
            *weight_EOI.stride(),
            E,
            OUT,
            IN=IN,
            K=groups.K,
            GATHER=gather,
            SCATTER=scatter,
            BLOCK_E=max(16, triton.next_power_of_2(E)),
            **sizes,
        )
    return out


def _tiles(S: int, E: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of tiles by the mean number of pairs of an expert: few pairs are bound by reading weights."""
    each = S / E
    if dtype == torch.float32:
        return {"BLOCK_M": 16 if each <= 16 else 32, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
    if each <= 12:
        return {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "num_warps": 4, "num_stages": 3}
    if each <= 24:
        return {"BLOCK_M": 32, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 4, "num_stages": 3}
    if each <= 96:
        return {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
    return {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}


@triton.jit
def _outer(
    left,
    right,
    out,
    pairs,
    ends,
    stride_l,
    stride_r,
    OUT,
    IN,
    K: tl.constexpr,
    GATHER_LEFT: tl.constexpr,
    GATHER_RIGHT: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """One tile of one expert's gradient: left rows (S, OUT) times right rows (S, IN), summed over its pairs."""
    expert = tl.program_id(1)
    columns = tl.cdiv(IN, BLOCK_I)
    o = (tl.program_id(0) // columns) * BLOCK_O + tl.arange(0, BLOCK_O)
    i = (tl.program_id(0) % columns) * BLOCK_I + tl.arange(0, BLOCK_I)
    s = tl.arange(0, BLOCK_S)
    stop = tl.load(ends + expert)
    first = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    acc_OI = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
    for start in range(first, stop, BLOCK_S):
        place = start + s
        real = place < stop
        pair = tl.load(pairs + place, mask=real, other=0)
        row_l = (pair // K if GATHER_LEFT else place).to(tl.int64)
        row_r = (pair // K if GATHER_RIGHT else place).to(tl.int64)
        l_SO = tl.load(
            left + row_l[:, None] * stride_l + o[None, :], mask=real[:, None] & (o < OUT)[None, :], other=0.0
        )
        r_SI = tl.load(
            right + row_r[:, None] * stride_r + i[None, :], mask=real[:, None] & (i < IN)[None, :], other=0.0
        )
        acc_OI = tl.dot(tl.trans(l_SO), r_SI, acc_OI, input_precision="ieee")
    to = out + expert.to(tl.int64) * OUT * IN + o[:, None].to(tl.int64) * IN + i[None, :]
    kept = (o < OUT)[:, None] & (i < IN)[None, :]
    if ADD:
        acc_OI += tl.load(to, mask=kept, other=0.0)
    tl.store(to, acc_OI.to(out.dtype.element_ty), mask=kept)


def grouped_outer(
    left: Tensor,
    right: Tensor,
    groups: Groups,
    out_EOI: Tensor,
    gather_left: bool = False,
    gather_right: bool = False,
    add: bool = False,
) -> Tensor:
    """Write each expert's sum over its pairs of left (OUT,) outer right (IN,) to `out_EOI`, or `add` it there.

    Rows are those of pairs in the order of the groups, or of tokens where they are gathered.
    """
    E, OUT, IN = out_EOI.shape
    half = left.dtype != torch.float32
    sizes: dict[str, Any] = {
        "BLOCK_O": 128 if half else 32,
        "BLOCK_I": 128 if half else 32,
        "BLOCK_S": 64 if half else 32,
    }
    grid = (triton.cdiv(OUT, sizes["BLOCK_O"]) * triton.cdiv(IN, sizes["BLOCK_I"]), E)
    _outer[grid](
        left,
        right,
        out_EOI,
        groups.pairs_S,
        groups.ends_E,
        left.stride(0),
        right.stride(0),
        OUT,
        IN,
        K=groups.K,
        GATHER_LEFT=gather_left,
        GATHER_RIGHT=gather_right,
        ADD=add,
        num_warps=8 if half else 4,
        num_stages=3,
        **sizes,
    )
    return out_EOI
