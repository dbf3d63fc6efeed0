"""Backward pass of packed attention for one tile of keys or of queries.

The equations are in packed_attention_backward.py, which launches them. `key_tile` works on transposed scores, keys by
queries, so that both of its sums take them as they are.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _walk_queries(
    dk_ND, dv_ND, k_ND, v_ND, q, grad_out, lse, delta, positions, lo, hi, first_row, index, own, child_offset,
    scale_log2, window, N, stride_qn, stride_qh, stride_gn, stride_gh,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr, WINDOWED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Queries [lo, hi) of a key tile's stream, in every query head of the group, into the gradients of the tile."""
    columns_D = tl.arange(0, D)
    keys_N = tl.arange(0, BLOCK_N)
    blocks = tl.cdiv(tl.maximum(hi - lo, 0), BLOCK_M)
    for step in range(GROUP * blocks):  # one loop over heads and blocks: the pipeline fills once
        head = (step // blocks).to(tl.int64)
        stream_M = lo + (step % blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside_M = stream_M < hi
        rows_M = tl.where(stream_M < own, first_row + stream_M, child_offset + stream_M).to(tl.int64)
        at_q = q + head * stride_qh + rows_M[:, None] * stride_qn + columns_D[None, :]
        at_g = grad_out + head * stride_gh + rows_M[:, None] * stride_gn + columns_D[None, :]
        q_MD = tl.load(at_q, mask=inside_M[:, None], other=0.0)
        g_MD = tl.load(at_g, mask=inside_M[:, None], other=0.0)
        # Beyond the end the weights are exp2(-inf) = 0.
        lse_M = tl.load(lse + head * N + rows_M, mask=inside_M, other=float("inf"))
        delta_M = tl.load(delta + head * N + rows_M, mask=inside_M, other=0.0)
        scores_NM = tl.dot(k_ND, tl.trans(q_MD), input_precision=PRECISION)
        weights_NM = tl.exp2(scores_NM * scale_log2 - (lse_M * 1.4426950408889634)[None, :])
        if MASKED:
            since_M = stream_M  # position of the query, counted from the first key of the tile
            if WINDOWED:
                at_M = tl.load(positions + rows_M, mask=inside_M, other=0)
                since_M = tl.where(stream_M < own, stream_M, at_M - index)
            gap_NM = since_M[None, :] - keys_N[:, None]
            seen_NM = gap_NM >= 0
            if WINDOWED:
                seen_NM = seen_NM & (gap_NM < window)
            weights_NM = tl.where(seen_NM, weights_NM, 0.0)
        dv_ND = tl.dot(weights_NM.to(g_MD.dtype), g_MD, dv_ND, input_precision=PRECISION)
        dp_NM = tl.dot(v_ND, tl.trans(g_MD), input_precision=PRECISION)
        ds_NM = weights_NM * (dp_NM - delta_M[None, :])
        dk_ND = tl.dot(ds_NM.to(q_MD.dtype), q_MD, dk_ND, input_precision=PRECISION)
    return dk_ND, dv_ND


@triton.jit
def key_tile(
    program, q, k, v, grad_out, lse, delta, grad_k, grad_v, partial, items, positions, scale, scale_log2, window,
    K, N, stride_dn, stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_gn, stride_gh,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of the keys and values of one tile and kv head, or a piece of them."""
    item = items + (program // K) * 9
    kv_head = (program % K).to(tl.int64)
    first_row, rows, index, own = tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
    child_offset, begin, end, slot = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6), tl.load(item + 7)
    until = tl.load(item + 8)
    keys_N = tl.arange(0, BLOCK_N)
    rows_N = (first_row + keys_N).to(tl.int64)
    columns_D = tl.arange(0, D)
    inside_N1 = (keys_N < rows)[:, None]
    at_k = k + kv_head * stride_kh + rows_N[:, None] * stride_kn + columns_D[None, :]
    at_v = v + kv_head * stride_vh + rows_N[:, None] * stride_vn + columns_D[None, :]
    k_ND = tl.load(at_k, mask=inside_N1, other=0.0)
    v_ND = tl.load(at_v, mask=inside_N1, other=0.0)
    q += kv_head * GROUP * stride_qh
    grad_out += kv_head * GROUP * stride_gh
    lse += kv_head * GROUP * N
    delta += kv_head * GROUP * N
    dk_ND = tl.zeros([BLOCK_N, D], dtype=tl.float32)
    dv_ND = tl.zeros([BLOCK_N, D], dtype=tl.float32)
    if WINDOWED:
        # The first query of every child lies until - rows + 1 or more after the last key; where the window ends before
        # it, only the own segment is left, and of that what lies within the window.
        masked_end = end
        if until - rows + 1 >= window:
            masked_end = tl.minimum(end, tl.minimum(own, window + rows - 1))
    else:
        masked_end = tl.minimum(end, (BLOCK_N + BLOCK_M - 1) // BLOCK_M * BLOCK_M)
    dk_ND, dv_ND = _walk_queries(
        dk_ND, dv_ND, k_ND, v_ND, q, grad_out, lse, delta, positions, begin, masked_end, first_row, index, own,
        child_offset, scale_log2, window, N, stride_qn, stride_qh, stride_gn, stride_gh,
        GROUP, D, BLOCK_M, BLOCK_N, True, WINDOWED, PRECISION,
    )  # fmt: skip
    if not WINDOWED:
        dk_ND, dv_ND = _walk_queries(
            dk_ND, dv_ND, k_ND, v_ND, q, grad_out, lse, delta, positions, tl.maximum(begin, masked_end), end, first_row,
            index, own, child_offset, scale_log2, window, N, stride_qn, stride_qh, stride_gn, stride_gh,
            GROUP, D, BLOCK_M, BLOCK_N, False, False, PRECISION,
        )  # fmt: skip
    if slot < 0:
        place_ND = rows_N[:, None] * stride_dn + kv_head * D + columns_D[None, :]
        tl.store(grad_k + place_ND, (dk_ND * scale).to(grad_k.dtype.element_ty), mask=inside_N1)
        tl.store(grad_v + place_ND, dv_ND.to(grad_v.dtype.element_ty), mask=inside_N1)
    else:
        piece_ND = partial + (slot.to(tl.int64) * K + kv_head) * (2 * BLOCK_N * D)
        piece_ND += keys_N[:, None] * D + columns_D[None, :]
        tl.store(piece_ND, dk_ND)
        tl.store(piece_ND + BLOCK_N * D, dv_ND)


@triton.jit
def key_rows(keys_N, chain, prefix_start, prefix_length, own_offset, CHAINED: tl.constexpr):
    """Rows of positions in a key stream: prefix, then own segment; `chain` lists prefixes that are in pieces."""
    if CHAINED:
        before_N = tl.load(chain + prefix_start + keys_N, mask=keys_N < prefix_length, other=0)
    else:
        before_N = prefix_start + keys_N
    return tl.where(keys_N < prefix_length, before_N, own_offset + keys_N).to(tl.int64)


@triton.jit
def _walk_keys(
    dq_MD, q_MD, g_MD, lse_M, delta_M, k, v, chain, lo, hi, positions_M, prefix_start, prefix_length, own_offset,
    scale_log2, window, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, WINDOWED: tl.constexpr, CHAINED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Positions [lo, hi) of a query tile's key stream into the gradient of the queries."""
    columns_D = tl.arange(0, D)
    for start in range(lo, hi, BLOCK_N):
        keys_N = start + tl.arange(0, BLOCK_N)
        rows_N = key_rows(keys_N, chain, prefix_start, prefix_length, own_offset, CHAINED)
        at_k = k + rows_N[:, None] * stride_kn + columns_D[None, :]
        at_v = v + rows_N[:, None] * stride_vn + columns_D[None, :]
        if MASKED:
            k_ND = tl.load(at_k, mask=(keys_N < hi)[:, None], other=0.0)
            v_ND = tl.load(at_v, mask=(keys_N < hi)[:, None], other=0.0)
        else:
            k_ND = tl.load(at_k)
            v_ND = tl.load(at_v)
        scores_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision=PRECISION)
        weights_MN = tl.exp2(scores_MN * scale_log2 - lse_M[:, None])
        if MASKED:
            gap_MN = positions_M[:, None] - keys_N[None, :]
            seen_MN = gap_MN >= 0
            if WINDOWED:
                seen_MN = seen_MN & (gap_MN < window)
            weights_MN = tl.where(seen_MN, weights_MN, 0.0)
        dp_MN = tl.dot(g_MD, tl.trans(v_ND), input_precision=PRECISION)
        ds_MN = weights_MN * (dp_MN - delta_M[:, None])
        dq_MD = tl.dot(ds_MN.to(k_ND.dtype), k_ND, dq_MD, input_precision=PRECISION)
    return dq_MD


@triton.jit
def query_tile(
    program, q, k, v, grad_out, lse, delta, grad_q, tiles, chain, scale, scale_log2, window,
    H, N, stride_dn, stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_gn, stride_gh,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr, CHAINED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of the queries of one tile and head."""
    tile = tiles + (program // H) * 8
    head = (program % H).to(tl.int64)
    first_row, rows, first_position = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    prefix_start, prefix_length, own_offset = tl.load(tile + 3), tl.load(tile + 4), tl.load(tile + 5)
    index_M = tl.arange(0, BLOCK_M)
    rows_M = (first_row + index_M).to(tl.int64)
    columns_D = tl.arange(0, D)
    inside_M = index_M < rows
    at_q = q + head * stride_qh + rows_M[:, None] * stride_qn + columns_D[None, :]
    at_g = grad_out + head * stride_gh + rows_M[:, None] * stride_gn + columns_D[None, :]
    q_MD = tl.load(at_q, mask=inside_M[:, None], other=0.0)
    g_MD = tl.load(at_g, mask=inside_M[:, None], other=0.0)
    lse_M = tl.load(lse + head * N + rows_M, mask=inside_M, other=float("inf")) * 1.4426950408889634
    delta_M = tl.load(delta + head * N + rows_M, mask=inside_M, other=0.0)
    k += head // GROUP * stride_kh
    v += head // GROUP * stride_vh
    positions_M = first_position + index_M
    dq_MD = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    if WINDOWED:
        lo = tl.maximum(first_position - window + 1, 0) // BLOCK_N * BLOCK_N
    else:
        lo = (first_position + 1) // BLOCK_N * BLOCK_N
        dq_MD = _walk_keys(
            dq_MD, q_MD, g_MD, lse_M, delta_M, k, v, chain, 0, lo, positions_M, prefix_start, prefix_length, own_offset,
            scale_log2, window, stride_kn, stride_vn, D, BLOCK_N, False, False, CHAINED, PRECISION,
        )  # fmt: skip
    dq_MD = _walk_keys(
        dq_MD, q_MD, g_MD, lse_M, delta_M, k, v, chain, lo, first_position + rows, positions_M, prefix_start,
        prefix_length, own_offset, scale_log2, window, stride_kn, stride_vn, D, BLOCK_N, True, WINDOWED, CHAINED,
        PRECISION,
    )  # fmt: skip
    at_dq = grad_q + rows_M[:, None] * stride_dn + head * D + columns_D[None, :]
    tl.store(at_dq, (dq_MD * scale).to(grad_q.dtype.element_ty), mask=inside_M[:, None])
