"""Attention over the segments of one packed row, with shared prefixes, for training and prefill.

One program computes a tile of queries of one head with an online softmax over blocks of keys in the order of their
positions. Blocks start at position 0 of a query's own stream, so the bits of its result depend on its own keys alone:
not on what else is in the row, nor on whether its prefix is shared or a copy. The backward pass has files of its own.
Left out: dropout, soft-capped scores, sinks, head dimensions that are not powers of two.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.layout import Layout
from whet.kernels.packed_attention_backward import LOG2E, packed_attention_backward, precision
from whet.kernels.packed_attention_tiles import key_rows
from whet.kernels.padded_layout import PaddedLayout

__all__ = ["Layout", "packed_attention", "packed_attention_backward", "packed_attention_forward"]


def packed_attention(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, layout: Layout, scale: float, window: int | None
) -> Tensor:
    """Attention of every packed token to its prefix and to its own segment so far; (N, H, D), differentiable."""
    out_NHD: Tensor = _PackedAttention.apply(q_NHD, k_NKD, v_NKD, layout, scale, window)
    return out_NHD


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, layout: Layout, scale: float, window: int | None
    ) -> Tensor:
        out_NHD, lse_NH = packed_attention_forward(q_NHD, k_NKD, v_NKD, layout, scale, window)
        ctx.save_for_backward(q_NHD, k_NKD, v_NKD, out_NHD, lse_NH)
        ctx.layout, ctx.scale, ctx.window = layout, scale, window
        return out_NHD

    @staticmethod
    def backward(ctx: Any, grad_out_NHD: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q_NHD, k_NKD, v_NKD, out_NHD, lse_NH = ctx.saved_tensors
        grads = packed_attention_backward(
            grad_out_NHD, q_NHD, k_NKD, v_NKD, out_NHD, lse_NH, ctx.layout, ctx.scale, ctx.window
        )
        return *grads, None, None, None


def packed_attention_forward(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, layout: Layout | PaddedLayout, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Return (N, H, D) and the (N, H) log-sum-exp of the scaled scores, natural log, fp32.

    Keys and values have N + layout.past rows: those of the packed tokens, then those of the past.
    """
    N, H, D = q_NHD.shape
    _check(q_NHD, k_NKD, v_NKD, layout, scale, window)
    q_NHD, k_NKD, v_NKD = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_NHD, k_NKD, v_NKD))
    out_NHD = q_NHD.new_empty(N, H, D)
    lse_HN = q_NHD.new_empty(H, N, dtype=torch.float32)
    block_m, block_n, warps, stages = forward_blocks(D, q_NHD.element_size())
    tiles = layout.query_tiles(block_m)
    _forward[(len(tiles) * H,)](
        *(q_NHD, k_NKD, v_NKD, out_NHD, lse_HN, tiles, tiles if layout.chain is None else layout.chain),
        *(scale * LOG2E, window or 0, H, N),
        *(q_NHD.stride(0), q_NHD.stride(1), k_NKD.stride(0), k_NKD.stride(1), v_NKD.stride(0), v_NKD.stride(1)),
        GROUP=H // k_NKD.shape[1],
        D=D,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        WINDOWED=window is not None,
        CHAINED=layout.chain is not None,
        PRECISION=precision(q_NHD.dtype),
        num_warps=warps,
        num_stages=stages,
        enable_fp_fusion=False,  # decoding rounds so too (paged_attention.py)
    )
    return out_NHD, lse_HN.T


def forward_blocks(D: int, element_size: int) -> tuple[int, int, int, int]:
    """Queries a tile, keys a block, warps and pipeline stages: what fits the registers of an H200."""
    if element_size > 2:
        return {128: (32, 32, 8, 1), 256: (16, 32, 8, 1)}.get(D, (32, 32, 4, 2))
    return {128: (128, 64, 8, 3), 256: (128, 32, 8, 2)}.get(D, (64, 64, 4, 3))


def _check(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, layout: Layout | PaddedLayout, scale: float, window: int | None
) -> None:
    (N, H, D), K = q_NHD.shape, k_NKD.shape[1]
    if D not in (16, 32, 64, 128, 256):
        raise ValueError(f"packed attention needs a head dimension of 16, 32, 64, 128 or 256, not {D}")
    rows = N + layout.past
    if k_NKD.shape != (rows, K, D) or v_NKD.shape != (rows, K, D) or H % K:
        raise ValueError(f"queries {(N, H, D)} do not fit keys {tuple(k_NKD.shape)} and values {tuple(v_NKD.shape)}")
    if layout.tokens != N:
        raise ValueError(f"the layout is of {layout.tokens} tokens, the queries are {N}")
    if scale <= 0 or (window is not None and window < 1):
        raise ValueError(f"scale {scale} and window {window} must be positive")


@triton.jit
def _attend(
    acc_MD, max_M, sum_M, q_MD, k, v, chain, lo, hi, positions_M, prefix_start, prefix_length, own_offset, scale_log2,
    window, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, WINDOWED: tl.constexpr, CHAINED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One stretch of the key stream, positions [lo, hi), into the running maximum, sum and output."""
    columns_D = tl.arange(0, D)
    for start in range(lo, hi, BLOCK_N):
        keys_N = start + tl.arange(0, BLOCK_N)
        rows_N = key_rows(keys_N, chain, prefix_start, prefix_length, own_offset, CHAINED)
        if MASKED:
            inside_N1 = (keys_N < hi)[:, None]
            k_ND = tl.load(k + rows_N[:, None] * stride_kn + columns_D[None, :], mask=inside_N1, other=0.0)
            v_ND = tl.load(v + rows_N[:, None] * stride_vn + columns_D[None, :], mask=inside_N1, other=0.0)
        else:
            k_ND = tl.load(k + rows_N[:, None] * stride_kn + columns_D[None, :])
            v_ND = tl.load(v + rows_N[:, None] * stride_vn + columns_D[None, :])
        scores_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision=PRECISION)
        if MASKED:
            gap_MN = positions_M[:, None] - keys_N[None, :]
            seen_MN = gap_MN >= 0
            if WINDOWED:
                seen_MN = seen_MN & (gap_MN < window)
            scores_MN = tl.where(seen_MN, scores_MN, float("-inf"))
        new_M = tl.maximum(max_M, tl.max(scores_MN, 1) * scale_log2)
        # A query may see nothing of the first blocks that the window lets its tile see.
        base_M = tl.where(new_M == float("-inf"), 0.0, new_M) if WINDOWED else new_M
        weights_MN = tl.exp2(scores_MN * scale_log2 - base_M[:, None])
        decay_M = tl.exp2(max_M - base_M)
        sum_M = sum_M * decay_M + tl.sum(weights_MN, 1)
        acc_MD = acc_MD * decay_M[:, None]
        acc_MD = tl.dot(weights_MN.to(v_ND.dtype), v_ND, acc_MD, input_precision=PRECISION)
        max_M = new_M
    return acc_MD, max_M, sum_M


@triton.jit(do_not_specialize=["window", "H", "N"])
def _forward(
    q, k, v, out, lse, tiles, chain, scale_log2, window, H, N,
    stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr, CHAINED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head; the heads of a tile lie next to each other in the grid and share its keys."""
    tile = tiles + (tl.program_id(0) // H) * 8
    head = (tl.program_id(0) % H).to(tl.int64)
    first_row, rows, first_position = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    prefix_start, prefix_length, own_offset = tl.load(tile + 3), tl.load(tile + 4), tl.load(tile + 5)
    index_M = tl.arange(0, BLOCK_M)
    rows_M = (first_row + index_M).to(tl.int64)
    columns_D = tl.arange(0, D)
    inside_M1 = (index_M < rows)[:, None]
    q_MD = tl.load(q + head * stride_qh + rows_M[:, None] * stride_qn + columns_D[None, :], mask=inside_M1, other=0.0)
    k += head // GROUP * stride_kh
    v += head // GROUP * stride_vh
    positions_M = first_position + index_M
    acc_MD = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    max_M = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    sum_M = tl.zeros([BLOCK_M], dtype=tl.float32)
    end = first_position + rows
    if WINDOWED:
        lo = tl.maximum(first_position - window + 1, 0) // BLOCK_N * BLOCK_N
    else:
        lo = (first_position + 1) // BLOCK_N * BLOCK_N  # up to here every query of the tile sees every key
        acc_MD, max_M, sum_M = _attend(
            acc_MD, max_M, sum_M, q_MD, k, v, chain, 0, lo, positions_M, prefix_start, prefix_length, own_offset,
            scale_log2, window, stride_kn, stride_vn, D, BLOCK_N, False, False, CHAINED, PRECISION,
        )  # fmt: skip
    acc_MD, max_M, sum_M = _attend(
        acc_MD, max_M, sum_M, q_MD, k, v, chain, lo, end, positions_M, prefix_start, prefix_length, own_offset,
        scale_log2, window, stride_kn, stride_vn, D, BLOCK_N, True, WINDOWED, CHAINED, PRECISION,
    )  # fmt: skip
    out += rows_M[:, None] * (H * D) + head * D + columns_D[None, :]
    tl.store(out, (acc_MD / sum_M[:, None]).to(out.dtype.element_ty), mask=inside_M1)
    natural_M = (max_M + tl.log2(sum_M)) * 0.6931471805599453
    tl.store(lse + head * N + rows_M, natural_M, mask=index_M < rows)
