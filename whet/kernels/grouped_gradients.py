"""Gradients of experts' weights: the sum over an expert's pairs of the outer products of two rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.routing import Groups


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
    EVEN: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """One tile of one expert's gradient: left rows (S, OUT) times right rows (S, IN), summed over its pairs."""
    # 1. Rows (O,) and columns (I,) of the tile; EVEN: all of them are inside.
    expert = tl.program_id(1)
    columns = tl.cdiv(IN, BLOCK_I)
    o = (tl.program_id(0) // columns) * BLOCK_O + tl.arange(0, BLOCK_O)
    i = (tl.program_id(0) % columns) * BLOCK_I + tl.arange(0, BLOCK_I)
    s = tl.arange(0, BLOCK_S)
    stop = tl.load(ends + expert)
    first = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    # 2. The sum (O, I) over blocks of S pairs.
    acc_OI = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
    for start in range(first, stop, BLOCK_S):
        place = start + s
        real = place < stop
        row_l = place.to(tl.int64)
        row_r = place.to(tl.int64)
        if GATHER_LEFT or GATHER_RIGHT:
            token = (tl.load(pairs + place, mask=real, other=0) // K).to(tl.int64)
            if GATHER_LEFT:
                row_l = token
            if GATHER_RIGHT:
                row_r = token
        l_real = real[:, None]
        r_real = real[:, None]
        if not EVEN:
            l_real = l_real & (o < OUT)[None, :]
            r_real = r_real & (i < IN)[None, :]
        l_SO = tl.load(left + row_l[:, None] * stride_l + o[None, :], mask=l_real, other=0.0)
        r_SI = tl.load(right + row_r[:, None] * stride_r + i[None, :], mask=r_real, other=0.0)
        acc_OI = tl.dot(tl.trans(l_SO), r_SI, acc_OI, input_precision="ieee")
    # 3. Written, or added to what is there.
    to = out + expert.to(tl.int64) * OUT * IN + (o[:, None] * IN + i[None, :])  # an expert's offsets fit 32 bits
    if EVEN:
        if ADD:
            acc_OI += tl.load(to)
        tl.store(to, acc_OI.to(out.dtype.element_ty))
    else:
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
    sizes = _tiles(left.dtype)
    O_, I_ = sizes["BLOCK_O"], sizes["BLOCK_I"]
    _outer[(triton.cdiv(OUT, O_) * triton.cdiv(IN, I_), E)](
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
        EVEN=OUT % O_ == 0 and IN % I_ == 0,
        **sizes,
    )
    return out_EOI


def _tiles(dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of a tile, and of the blocks of pairs that it is summed over."""
    if dtype == torch.float32:
        return {"BLOCK_O": 32, "BLOCK_I": 32, "BLOCK_S": 32, "num_warps": 4, "num_stages": 3}
    return {"BLOCK_O": 128, "BLOCK_I": 128, "BLOCK_S": 32, "num_warps": 4, "num_stages": 5}
