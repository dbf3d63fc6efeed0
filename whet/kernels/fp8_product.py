"""Product of a few rows in 8 bits with a weight in 8 bits, each row with its scale: a decode step's.

`torch._scaled_mm` cuts outputs into tiles for many rows: with few, most of the GPU has nothing to read. Here a program
takes 64 rows of the weight, the tensor cores' first factor, and up to 32 tokens. The inner dimension is walked in order
as there, and scales are multiplied in the same order, so both have given the same bits wherever they were compared.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _BLOCK, _DEPTH = 32, 64, 256
_PROCESSORS = 132  # of the GPU that the tiles were chosen on


def suits(rows: int, outputs: int) -> bool:
    """True where this product is faster than torch's: one tile of rows, or too few tiles to fill the device."""
    return rows <= _ROWS or (rows <= 4 * _ROWS and _programs(rows, outputs) <= 2 * _PROCESSORS)


def _programs(rows: int, outputs: int) -> int:
    return triton.cdiv(rows, _ROWS) * triton.cdiv(outputs, _BLOCK)


def few_rows_product(x_RI: Tensor, x_scale_R1: Tensor, weight_OI: Tensor, weight_scale_O1: Tensor) -> Tensor:
    """x weightᵀ (R, O) in bf16; factors are contiguous, scales in fp32."""
    (R, IN), OUT = x_RI.shape, len(weight_OI)
    out_RO = torch.empty(R, OUT, dtype=torch.bfloat16, device=x_RI.device)
    if R and OUT:
        block = 16 if R <= 16 else _ROWS
        deep = triton.cdiv(OUT, _BLOCK) <= _PROCESSORS  # one program each: more of its weight is on its way
        _product[(triton.cdiv(R, block) * triton.cdiv(OUT, _BLOCK),)](
            *(x_RI, weight_OI, out_RO, x_scale_R1, weight_scale_O1),
            *(R, OUT, IN),
            BLOCK_R=block,
            BLOCK_O=_BLOCK,
            BLOCK_I=_DEPTH,
            num_warps=4,
            num_stages=(6 if block == 16 else 5) if deep else 4,
        )
    return out_RO


# The number of rows changes from step to step: a multiple of 16 would otherwise be one more compilation.
@triton.jit(do_not_specialize=["R"])
def _product(
    x, weight, out, x_scales, weight_scales, R, OUT, IN,
    BLOCK_R: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """BLOCK_O outputs of BLOCK_R rows."""
    # 1. Which tile this is; programs of the same outputs follow each other, so that they share the weight in L2.
    tiles = tl.cdiv(R, BLOCK_R)
    r = tl.program_id(0) % tiles * BLOCK_R + tl.arange(0, BLOCK_R)
    o = tl.program_id(0) // tiles * BLOCK_O + tl.arange(0, BLOCK_O)
    i = tl.arange(0, BLOCK_I)
    # 2. The product (O, R) in fp32.
    x_at = x + r.to(tl.int64)[:, None] * IN + i[None, :]
    weight_at = weight + o.to(tl.int64)[:, None] * IN + i[None, :]
    acc_OR = tl.zeros((BLOCK_O, BLOCK_R), tl.float32)
    for start in range(0, IN, BLOCK_I):
        inside = (i < IN - start)[None, :]
        weight_OI = tl.load(weight_at, mask=inside & (o < OUT)[:, None], other=0.0)
        x_RI = tl.load(x_at, mask=inside & (r < R)[:, None], other=0.0)
        acc_OR = tl.dot(weight_OI, tl.trans(x_RI), acc_OR, input_precision="ieee")
        x_at += BLOCK_I
        weight_at += BLOCK_I
    # 3. Scales: the weight's first, as torch has it.
    acc_RO = tl.trans(acc_OR) * tl.load(weight_scales + o, mask=o < OUT, other=0.0)[None, :]
    acc_RO = acc_RO * tl.load(x_scales + r, mask=r < R, other=0.0)[:, None]
    kept = (r < R)[:, None] & (o < OUT)[None, :]
    tl.store(out + r.to(tl.int64)[:, None] * OUT + o[None, :], acc_RO.to(out.dtype.element_ty), mask=kept)
