"""Rows rounded to 8-bit floats (e4m3) with a scale each: the largest element of a row becomes the largest number."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST = 448.0  # of e4m3
_LEAST = 1e-12  # so that a row of zeros has a scale


@triton.jit
def _quantise(x, q, scales, stride, WIDTH, LARGEST: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + cols, mask=cols < WIDTH, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), axis=0), LEAST) / LARGEST
    tl.store(scales + row, scale)
    tl.store(q + row * WIDTH + cols, (value / scale).to(q.dtype.element_ty), mask=cols < WIDTH)


def quantise_rows(x_NK: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in e4m3 (N, K), and the scale (N, 1) in fp32 that each must be multiplied by."""
    N, width = x_NK.shape
    q = torch.empty(N, width, dtype=torch.float8_e4m3fn, device=x_NK.device)
    scales = torch.empty(N, 1, dtype=torch.float32, device=x_NK.device)
    if N:
        block = triton.next_power_of_2(width)
        x_NK = x_NK if x_NK.stride(1) == 1 else x_NK.contiguous()
        warps = min(16, max(1, block // 512))
        _quantise[(N,)](
            x_NK, q, scales, x_NK.stride(0), width, LARGEST=LARGEST, LEAST=_LEAST, BLOCK=block, num_warps=warps
        )
    return q, scales
