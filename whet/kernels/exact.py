"""Products and sums whose every row has the same bits whatever else is in the batch, and however large the batch is.

A library picks a matrix product's tiles, and whether to split the inner dimension, by the number of rows; a sampler
that decodes 512 tokens and a trainer that reads 16,384 then round differently. Here the tiles are a function of the
weight's shape and dtype alone: one compiled kernel serves every number of rows, the inner dimension is walked in
order in fp32, and nothing is split. Left out: float64 products, and any choice that would need the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

GROUP_M = 8  # tiles of this many row blocks share the weight tiles they read, while those are in L2
SUM_ELEMENTS = 2048  # elements one program of a row sum holds at a time


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of the product that one program computes."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


def tile_of(n: int, dtype: torch.dtype) -> Tile:
    """The tile for a weight of n rows. It must never depend on the number of tokens: that is what keeps the bits."""
    if dtype == torch.float32:
        return Tile(64, 64, 32, 4, 3)
    if n <= 256:  # key and value projections of small models: enough programs at 512 tokens
        return Tile(64, 64, 64, 4, 4)
    if n <= 2048:
        return Tile(64, 128, 64, 4, 4)
    return Tile(128, 256, 64, 8, 4)


# M is not specialised: 1 row, 16 rows and 17 rows would otherwise be three compilations.
@triton.jit(do_not_specialize=["M"])
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_wn,
    stride_wk,
    HAS_BIAS: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of y_MN = x_MK w_NKᵀ + b_N; x and y are contiguous."""
    program = tl.program_id(0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP * tl.cdiv(N, BLOCK_N)
    first_m = program // in_group * GROUP
    group_m = tl.minimum(blocks_m - first_m, GROUP)
    m = (first_m + program % in_group % group_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = program % in_group // group_m * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)

    # Rows past the end read the last one and are never stored; w is masked instead, for it may be contiguous along n.
    x_at = x_ptr + tl.minimum(m, M - 1).to(tl.int64)[:, None] * K + k[None, :]
    w_at = w_ptr + n.to(tl.int64)[None, :] * stride_wn + k[:, None].to(tl.int64) * stride_wk
    n_inside = n[None, :] < N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_at)
            w = tl.load(w_at, mask=n_inside, other=0.0)
        else:
            x = tl.load(x_at, mask=k[None, :] < K - start, other=0.0)
            w = tl.load(w_at, mask=n_inside & (k[:, None] < K - start), other=0.0)
        total = tl.dot(x, w, total, input_precision=PRECISION)
        x_at += BLOCK_K
        w_at += BLOCK_K * stride_wk
    if HAS_BIAS:
        total += tl.load(b_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    y_at = y_ptr + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(y_at, total.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & n_inside)


def linear(x_MK: Tensor, w_NK: Tensor, b_N: Tensor | None = None) -> Tensor:
    """x wᵀ + b, (M, N), summed in fp32 and rounded once to x's dtype. w may have any strides. No autograd."""
    (M, K), N = x_MK.shape, w_NK.shape[0]
    if x_MK.dtype not in (torch.bfloat16, torch.float16, torch.float32) or w_NK.dtype != x_MK.dtype:
        raise TypeError(f"an exact product takes bfloat16, float16 or float32 twice, not {x_MK.dtype} and {w_NK.dtype}")
    if w_NK.shape[1] != K:
        raise ValueError(f"x is (M, {K}) but the weight is {tuple(w_NK.shape)}")
    y_MN = x_MK.new_empty(M, N)
    if M == 0 or N == 0:
        return y_MN
    x_MK = _aligned(x_MK)
    tile = tile_of(N, x_MK.dtype)
    linear_kernel[(triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),)](
        x_MK,
        w_NK,
        w_NK if b_N is None else b_N.contiguous(),
        y_MN,
        M,
        N,
        K,
        w_NK.stride(0),
        w_NK.stride(1),
        HAS_BIAS=b_N is not None,
        EVEN_K=K % tile.k == 0,
        PRECISION="ieee",
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        GROUP=GROUP_M,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return y_MN


@triton.jit(do_not_specialize=["M"])
def row_sum_kernel(
    x_ptr, y_ptr, M, K, MEAN: tl.constexpr, WIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Sums, or means, of BLOCK_M rows of a contiguous x_MK."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    x_at = x_ptr + m.to(tl.int64)[:, None] * K + k[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float64 if WIDE else tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = (m[:, None] < M) & (k[None, :] < K - start)
        total += tl.load(x_at + start, mask=inside, other=0.0).to(total.dtype)
    y = tl.sum(total, axis=1)
    if MEAN:
        y = y / K
    tl.store(y_ptr + m, y.to(y_ptr.dtype.element_ty), mask=m < M)


def row_sum(x_MK: Tensor, mean: bool = False) -> Tensor:
    """Sum (or mean) of each row, (M,), added in fp32 in an order that depends on K alone. No autograd."""
    M, K = x_MK.shape
    if M == 0 or K == 0:
        return x_MK.mean(1) if mean else x_MK.sum(1)
    y_M = x_MK.new_empty(M)
    block_k = min(triton.next_power_of_2(K), SUM_ELEMENTS)
    block_m = SUM_ELEMENTS // block_k
    row_sum_kernel[(triton.cdiv(M, block_m),)](
        _aligned(x_MK),
        y_M,
        M,
        K,
        MEAN=mean,
        WIDE=x_MK.dtype == torch.float64,
        BLOCK_M=block_m,
        BLOCK_K=block_k,
        num_warps=4,
    )
    return y_M


def _aligned(x: Tensor) -> Tensor:
    """x as every call must find it, contiguous and 16-byte aligned, so that all are served by one compiled kernel."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()
