"""Gradients of packed attention, without atomics: the same inputs give the same bits.

One launch holds two kinds of programs. The first kind owns a tile of keys of one kv head and walks over the queries
that see it, in all query heads of that kv head; the keys of a prompt are seen by all of its responses, so long walks
are cut into pieces whose sums are added, in order, by a small kernel afterwards. The second kind owns a tile of queries
of one head and walks over its keys. Weights are recomputed from the log-sum-exp of the forward pass. With P the
weights and dP = dO·Vᵀ: dV = Pᵀ·dO, dS = P∘(dP - rowsum(dO∘O)), dQ = scale·dS·K, dK = scale·dSᵀ·Q.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.layout import Layout
from whet.kernels.packed_attention_tiles import key_tile, query_tile

LOG2E = 1.4426950408889634
LONGEST_WALK = 1024  # queries of one head that a program for keys walks over before the walk is cut


def precision(dtype: torch.dtype) -> str:
    """Products of fp32 in three TF32 passes, as exact as fp32; the setting says nothing about 16-bit inputs."""
    return "tf32x3" if dtype == torch.float32 else "tf32"


def backward_blocks(D: int, element_size: int) -> tuple[int, int, int, int]:
    """Queries and keys a block, warps and pipeline stages: what fits the registers of an H200."""
    if element_size > 2:
        return {128: (32, 32, 8, 1), 256: (16, 16, 4, 1)}.get(D, (32, 32, 4, 1))
    return {256: (32, 32, 8, 1)}.get(D, (64, 64, 4, 2))


def packed_attention_backward(
    grad_out_NHD: Tensor,
    q_NHD: Tensor,
    k_NKD: Tensor,
    v_NKD: Tensor,
    out_NHD: Tensor,
    lse_NH: Tensor,
    layout: Layout,
    scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v: views of one (N, (H + 2K)·D) buffer, in this order."""
    (N, H, D), K = q_NHD.shape, k_NKD.shape[1]
    grad_out_NHD, q_NHD, k_NKD, v_NKD, out_NHD = (
        x if x.stride(-1) == 1 else x.contiguous() for x in (grad_out_NHD, q_NHD, k_NKD, v_NKD, out_NHD)
    )
    grad_NC = q_NHD.new_empty(N, (H + 2 * K) * D)
    grad_q_NHD, grad_k_NKD, grad_v_NKD = (x.view(N, -1, D) for x in grad_NC.split((H * D, K * D, K * D), dim=1))
    lse_HN = lse_NH.T.contiguous()  # no copy: the forward pass returns the transpose of what is stored
    delta_HN = torch.empty_like(lse_HN)
    rows = 64
    _delta[(triton.cdiv(N, rows) * H,)](
        *(grad_out_NHD, out_NHD, delta_HN, H, N),
        *(grad_out_NHD.stride(0), grad_out_NHD.stride(1), out_NHD.stride(0), out_NHD.stride(1)),
        D=D,
        ROWS=rows,
    )
    block_m, block_n, warps, stages = backward_blocks(D, q_NHD.element_size())
    query_tiles = layout.query_tiles(block_m)
    key_tiles = layout.key_tiles(block_n, block_m, LONGEST_WALK)
    partial = q_NHD.new_empty(key_tiles.slots * K, 2, block_n, D, dtype=torch.float32)
    key_programs = len(key_tiles.items) * K
    _backward[(key_programs + len(query_tiles) * H,)](
        *(q_NHD, k_NKD, v_NKD, grad_out_NHD, lse_HN, delta_HN, grad_q_NHD, grad_k_NKD, grad_v_NKD),
        *(partial, key_tiles.items, query_tiles, layout.positions if window is not None else query_tiles),
        query_tiles if layout.chain is None else layout.chain,
        *(key_programs, scale, scale * LOG2E, window or 0, H, K, N, grad_NC.stride(0)),
        *(q_NHD.stride(0), q_NHD.stride(1), k_NKD.stride(0), k_NKD.stride(1), v_NKD.stride(0), v_NKD.stride(1)),
        *(grad_out_NHD.stride(0), grad_out_NHD.stride(1)),
        GROUP=H // K,
        D=D,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        WINDOWED=window is not None,
        CHAINED=layout.chain is not None,
        PRECISION=precision(q_NHD.dtype),
        num_warps=warps,
        num_stages=stages,
    )
    if key_tiles.slots:
        _sum_pieces[(len(key_tiles.sums) * K, 2)](
            *(partial, key_tiles.sums, grad_k_NKD, grad_v_NKD, scale, K, grad_NC.stride(0)), D=D, BLOCK_N=block_n
        )
    return grad_q_NHD, grad_k_NKD, grad_v_NKD


@triton.jit(do_not_specialize=["H", "N"])
def _delta(grad_out, out, delta, H, N, stride_gn, stride_gh, stride_on, stride_oh, D: tl.constexpr, ROWS: tl.constexpr):
    """rowsum(dO∘O) of a run of tokens of one head."""
    head = (tl.program_id(0) % H).to(tl.int64)
    index_R = (tl.program_id(0) // H) * ROWS + tl.arange(0, ROWS)
    rows_R = index_R.to(tl.int64)
    columns_D = tl.arange(0, D)
    inside_R1 = (index_R < N)[:, None]
    at_g = grad_out + rows_R[:, None] * stride_gn + head * stride_gh + columns_D[None, :]
    at_o = out + rows_R[:, None] * stride_on + head * stride_oh + columns_D[None, :]
    g_RD = tl.load(at_g, mask=inside_R1, other=0.0).to(tl.float32)
    o_RD = tl.load(at_o, mask=inside_R1, other=0.0).to(tl.float32)
    tl.store(delta + head * N + rows_R, tl.sum(g_RD * o_RD, 1), mask=index_R < N)


@triton.jit(do_not_specialize=["K"])
def _sum_pieces(partial, sums, grad_k, grad_v, scale, K, stride_dn, D: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add the pieces of a key tile in their order; axis 1 of the grid: 0 for keys, 1 for values."""
    tile = sums + (tl.program_id(0) // K) * 4
    kv_head = (tl.program_id(0) % K).to(tl.int64)
    which = tl.program_id(1)
    first_row, rows, slot, pieces = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3)
    keys_N = tl.arange(0, BLOCK_N)
    columns_D = tl.arange(0, D)
    piece_ND = partial + (slot.to(tl.int64) * K + kv_head) * (2 * BLOCK_N * D) + which * (BLOCK_N * D)
    piece_ND += keys_N[:, None] * D + columns_D[None, :]
    sum_ND = tl.zeros([BLOCK_N, D], dtype=tl.float32)
    for _ in range(pieces):
        sum_ND += tl.load(piece_ND)
        piece_ND += K * (2 * BLOCK_N * D)
    rows_N = (first_row + keys_N).to(tl.int64)
    place_ND = rows_N[:, None] * stride_dn + kv_head * D + columns_D[None, :]
    inside_N1 = (keys_N < rows)[:, None]
    if which == 0:
        tl.store(grad_k + place_ND, (sum_ND * scale).to(grad_k.dtype.element_ty), mask=inside_N1)
    else:
        tl.store(grad_v + place_ND, sum_ND.to(grad_v.dtype.element_ty), mask=inside_N1)


@triton.jit(do_not_specialize=["key_programs", "window", "H", "K", "N"])
def _backward(
    q, k, v, grad_out, lse, delta, grad_q, grad_k, grad_v, partial, key_items, query_tiles, positions, chain,
    key_programs, scale, scale_log2, window, H, K, N, stride_dn,
    stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_gn, stride_gh,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr, CHAINED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Key tiles first: among them are the longest programs. Query tiles fill the device while those finish."""
    program = tl.program_id(0)
    if program < key_programs:
        key_tile(
            program, q, k, v, grad_out, lse, delta, grad_k, grad_v, partial, key_items, positions, scale, scale_log2,
            window, K, N, stride_dn, stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_gn,
            stride_gh, GROUP, D, BLOCK_M, BLOCK_N, WINDOWED, PRECISION,
        )  # fmt: skip
    else:
        query_tile(
            program - key_programs, q, k, v, grad_out, lse, delta, grad_q, query_tiles, chain, scale, scale_log2,
            window, H, N, stride_dn, stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_gn,
            stride_gh, GROUP, D, BLOCK_M, BLOCK_N, WINDOWED, CHAINED, PRECISION,
        )  # fmt: skip
