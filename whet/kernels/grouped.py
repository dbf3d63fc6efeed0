"""Grouped products: every expert's weight times the rows of its pairs, plain or with the gated unit behind them.

Pairs are sorted by expert and cut into tiles (`routing.Groups`). The host does not know how many an expert has: there
are programs for as many tiles as there may be, and those without one are idle. A row's bits depend on its expert's
weight and on the row alone for a given tile, which is chosen by the number of pairs. Gradients of weights are in
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


# The number of tiles changes from batch to batch: a multiple of 16 would otherwise be one more compilation.
@triton.jit(do_not_specialize=["T"])
def _linear(
    x, weight, out, pairs, tiles_3T, x_scales, w_scales, stride_x, stride_e, stride_o, stride_i, T, OUT,
    IN: tl.constexpr, K: tl.constexpr, GATHER: tl.constexpr, SCATTER: tl.constexpr, SCALED: tl.constexpr,
    GLU: tl.constexpr, SILU: tl.constexpr, SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """BLOCK_M pairs of one expert and BLOCK_N columns of its output; with GLU the weight has 2 · OUT rows."""
    columns = tl.cdiv(OUT, BLOCK_N)
    tile = tl.program_id(0) // columns
    # 1. The expert of this tile, and its pairs: places from `first` to `stop`.
    expert = tl.load(tiles_3T + tile).to(tl.int64)
    first = tl.load(tiles_3T + T + tile)
    stop = tl.load(tiles_3T + 2 * T + tile)
    if expert >= 0:
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
    (_, _, IN), (S, OUT), T = weight_ERI.shape, out.shape, groups.tiles_3T.shape[1]
    if not S:
        return
    x = x if x.stride(1) == 1 else x.contiguous()
    sizes = _tiles(groups.rows, x.dtype, GLU)
    _linear[(T * triton.cdiv(OUT, sizes["BLOCK_N"]),)](
        x,
        weight_ERI,
        out,
        groups.pairs_S,
        groups.tiles_3T,
        *((out, out) if scales is None else scales),
        x.stride(0),
        *weight_ERI.stride(),
        T,
        OUT,
        IN=IN,
        K=groups.K,
        SCALED=scales is not None,
        GLU=GLU,
        BLOCK_M=groups.rows,
        **how,
        **sizes,
    )


def tile_rows(pairs: int, experts: int, dtype: torch.dtype) -> int:
    """Rows of a tile, by the mean number of pairs of an expert: few pairs are bound by reading weights."""
    each = pairs / experts
    if dtype == torch.float32:
        return 16 if each <= 16 else 32
    return 16 if each <= 12 else 32 if each <= 24 else 64 if each <= 96 else 128


def _tiles(rows: int, dtype: torch.dtype, glu: bool) -> dict[str, Any]:
    """Other sizes of a tile of so many rows; with a gated unit two tiles of weights are on their way at once."""
    if dtype == torch.float32:
        return _tile(64, 32, 4, 2)
    narrow, wide = dtype == torch.float8_e4m3fn, 64 if glu else 128
    if rows == 128:
        return _tile(128, 128, 8, 3) if narrow else _tile(2 * wide, 64, 8, 3)
    if narrow:
        return _tile(64 if rows < 64 else wide, 128, 4, 4 if rows != 32 else 3, swap=rows < 64)
    if rows == 64:
        return _tile(wide, 64, 4, 3)
    return _tile(wide, 128, 4, 3) if rows == 32 else _tile(64, 128, 4, 3, swap=True)


def _tile(columns: int, depth: int, warps: int, stages: int, swap: bool = False) -> dict[str, Any]:
    """Options of a launch; `swap` lets the tensor cores take the weight's rows first."""
    return {"BLOCK_N": columns, "BLOCK_K": depth, "SWAP": swap, "num_warps": warps, "num_stages": stages}
