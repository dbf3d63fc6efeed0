"""Grouped products: every expert's weight times the rows of its pairs, plain or with the gated unit behind them.

Pairs are sorted by expert (`routing.Groups`), and the host does not know how many an expert has: programs find theirs
from the ends of the groups, and those that find nothing are idle. A row's bits depend on its expert's weight and on
the row alone for a given tile, which is chosen by the number of pairs. Gradients of weights are in
`grouped_gradients.py`.

Both functions can be overridden through torch's published interface: a `TorchFunctionMode` sees their calls.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from whet.kernels.glu import activated, is_silu
from whet.kernels.routing import Groups

Scales = tuple[Tensor, Tensor]  # of the rows of x (rows, 1), and of the weight's (E, rows of an expert)


@triton.jit
def _dot(x_MK, w_KN, acc, SWAP: tl.constexpr):
    if SWAP:
        acc = tl.dot(tl.trans(w_KN), tl.trans(x_MK), acc, input_precision="ieee")
    else:
        acc = tl.dot(x_MK, w_KN, acc, input_precision="ieee")
    return acc


@triton.jit
def _linear(
    x,
    weight,
    out,
    pairs,
    ends,
    x_scales,
    w_scales,
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
    SCALED: tl.constexpr,
    GLU: tl.constexpr,
    SILU: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_M pairs of one expert and BLOCK_N columns of its output; with GLU the weight has 2 · OUT rows."""
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
        # 3. The product in fp32, (M, N), or (N, M) where that suits the tensor cores better; with GLU the gate's, and
        # beside it that of up, OUT rows further on.
        acc_MN = tl.zeros((BLOCK_N, BLOCK_M) if SWAP else (BLOCK_M, BLOCK_N), tl.float32)
        up_MN = acc_MN
        x_at = x + row[:, None] * stride_x + k[None, :]
        w_at = weight + expert * stride_e + k[:, None] * stride_i + n[None, :] * stride_o
        for step in range(tl.cdiv(IN, BLOCK_K)):
            inside = k < IN - step * BLOCK_K
            w_inside = inside[:, None] & (n < OUT)[None, :]
            x_MK = tl.load(x_at, mask=real[:, None] & inside[None, :], other=0.0)
            w_KN = tl.load(w_at, mask=w_inside, other=0.0)
            acc_MN = _dot(x_MK, w_KN, acc_MN, SWAP)
            if GLU:
                up_MN = _dot(x_MK, tl.load(w_at + OUT * stride_o, mask=w_inside, other=0.0), up_MN, SWAP)
            x_at += BLOCK_K
            w_at += BLOCK_K * stride_i
        if SWAP:
            acc_MN, up_MN = tl.trans(acc_MN), tl.trans(up_MN)
        # 4. Rows in 8 bits have scales, (M,) and (N,).
        if SCALED:
            scale_M = tl.load(x_scales + row, mask=real, other=0.0)
            rows_of_weight = w_scales + expert * (2 * OUT if GLU else OUT) + n
            acc_MN *= scale_M[:, None] * tl.load(rows_of_weight, mask=n < OUT, other=0.0)[None, :]
            if GLU:
                up_MN *= scale_M[:, None] * tl.load(rows_of_weight + OUT, mask=n < OUT, other=0.0)[None, :]
        # 5. The gated unit, rounded where `glu` rounds.
        if GLU:
            kind = out.dtype.element_ty
            act_MN, _ = activated(acc_MN.to(kind).to(tl.float32), SILU)
            acc_MN = act_MN.to(kind).to(tl.float32) * up_MN.to(kind).to(tl.float32)
        # 6. Back to the pair's own row, or left in the order of the groups.
        to = (pair if SCATTER else place).to(tl.int64)
        kept = real[:, None] & (n < OUT)[None, :]
        tl.store(out + to[:, None] * OUT + n[None, :], acc_MN.to(out.dtype.element_ty), mask=kept)


def grouped_linear(
    x: Tensor,
    weight_EOI: Tensor,
    groups: Groups,
    gather: bool = False,
    scatter: bool = False,
    scales: Scales | None = None,
) -> Tensor:
    """Rows (S, OUT): each pair's row of x times its expert's weight, in the order of the groups.

    `gather` takes rows of tokens (N, IN) instead of pairs in the order of the groups; `scatter` returns rows in the
    order of the pairs' numbers. The weight may be a transposed view. Factors in 8 bits have `scales`, and give bf16.
    """
    if has_torch_function((x, weight_EOI)):
        return handle_torch_function(  # type: ignore[no-any-return]
            grouped_linear, (x, weight_EOI), x, weight_EOI, groups, gather, scatter, scales
        )
    out = _out(x, groups, weight_EOI.shape[1], scales)
    _launch(x, weight_EOI, groups, out, scales, GATHER=gather, SCATTER=scatter, GLU=False, SILU=True)
    return out


def grouped_glu(
    x_NH: Tensor, weight_E2IH: Tensor, groups: Groups, activation: str, scales: Scales | None = None
) -> Tensor:
    """act(gate) · up (S, I) of every pair in the order of the groups; an expert's first I rows are the gate's.

    The same numbers as `glu(grouped_linear(x_NH, weight_E2IH, groups, gather=True), activation)`.
    """
    if has_torch_function((x_NH, weight_E2IH)):
        return handle_torch_function(  # type: ignore[no-any-return]
            grouped_glu, (x_NH, weight_E2IH), x_NH, weight_E2IH, groups, activation, scales
        )
    out = _out(x_NH, groups, weight_E2IH.shape[1] // 2, scales)
    silu = is_silu(activation)
    _launch(x_NH, weight_E2IH, groups, out, scales, GATHER=True, SCATTER=False, GLU=True, SILU=silu)
    return out


def _out(x: Tensor, groups: Groups, width: int, scales: Scales | None) -> Tensor:
    dtype = x.dtype if scales is None else torch.bfloat16
    return torch.empty(len(groups.pairs_S), width, dtype=dtype, device=x.device)


def _launch(
    x: Tensor, weight_ERI: Tensor, groups: Groups, out: Tensor, scales: Scales | None, GLU: bool, **how: bool
) -> None:
    """One program for each tile that an expert may have, and each of its columns."""
    (E, _, IN), (S, OUT) = weight_ERI.shape, out.shape
    if not S:
        return
    x = x if x.stride(1) == 1 else x.contiguous()
    sizes = _tiles(S, E, x.dtype, GLU)
    tiles = S // sizes["BLOCK_M"] + min(E, S)  # no expert wastes more than one tile
    _linear[(tiles * triton.cdiv(OUT, sizes["BLOCK_N"]),)](
        x,
        weight_ERI,
        out,
        groups.pairs_S,
        groups.ends_E,
        *((out, out) if scales is None else scales),
        x.stride(0),
        *weight_ERI.stride(),
        E,
        OUT,
        IN=IN,
        K=groups.K,
        SCALED=scales is not None,
        GLU=GLU,
        BLOCK_E=max(16, triton.next_power_of_2(E)),
        **how,
        **sizes,
    )


def _tiles(S: int, E: int, dtype: torch.dtype, glu: bool) -> dict[str, Any]:
    """Sizes of tiles by the mean number of pairs of an expert: few pairs are bound by reading weights."""
    each = S / E
    if dtype == torch.float32:
        return _tile(16 if each <= 16 else 32, 64, 32, 4, 2)
    wide = 64 if glu else 128  # with a gated unit two tiles of weights are on their way at once
    if dtype == torch.float8_e4m3fn:
        return _tile(16 if each <= 12 else 32 if each <= 24 else 64, wide, 128, 4, 4, each <= 96)
    if each <= 12:
        return _tile(16, 64, 128, 4, 3)
    if each <= 24:
        return _tile(32, wide, 128, 4, 3)
    if each <= 96:
        return _tile(64, wide, 64, 4, 3)
    return _tile(128, 2 * wide, 64, 8, 3)


def _tile(rows: int, columns: int, depth: int, warps: int, stages: int, swap: bool = False) -> dict[str, Any]:
    """Options of a launch; `swap` lets the tensor cores take the weight's rows first."""
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "SWAP": swap}
    return sizes | {"num_warps": warps, "num_stages": stages}
