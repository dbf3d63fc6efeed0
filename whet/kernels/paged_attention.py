"""Attention of single queries over a paged key-value cache: the attention of a decode step.

One program takes one query token and one kv head: the query heads that read this kv head are the rows of one tile, so
every key and value is read once. Keys are taken in blocks of a fixed number of positions counted from position 0,
whatever the page size and whoever shares the batch, and blocks may be gathered into shares: each has a softmax of its
own, and shares are added in order, by the program that computed them or, where there are few queries, by another
kernel behind programs for every share. Both add the same numbers in the same order: the bits of a result depend on the
query, its own keys and the size of a share only.

Left out: head sizes that are no power of two, soft-capped scores, attention sinks.
"""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.paged_attention_shares import LN2, combine, weights_of
from whet.kernels.paged_attention_tiles import UNCUT, Shares, launch_options

_LOG2E = math.log2(math.e)


@overload
def paged_attention(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    rows_B: Tensor | None,
    lengths_B: Tensor,
    scale: float,
    window: int | None,
    shares: Shares = UNCUT,
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def paged_attention(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    rows_B: Tensor | None,
    lengths_B: Tensor,
    scale: float,
    window: int | None,
    shares: Shares = UNCUT,
    *,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def paged_attention(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    rows_B: Tensor | None,
    lengths_B: Tensor,
    scale: float,
    window: int | None,
    shares: Shares = UNCUT,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Query i over the first lengths_B[i] tokens of row rows_B[i] (None: row i) of the block table; (B, H, D).

    keys and values are (pages, K, P, D) with the page size P a power of two, in the dtype of the queries or in e4m3. A
    window keeps the last `window` tokens. A length of 0 gives zeros. With return_lse also the natural log of the
    softmax's denominator, (B, H) in fp32. Nothing is read by the host: the call can be part of a CUDA graph, with
    `shares` a constant of it.
    """
    B, H, D = q_BHD.shape
    options = launch_options(D, keys.dtype)
    _check(q_BHD, keys, values, shares, options["BLOCK_N"])
    out_BHD = torch.empty(B, H, D, dtype=q_BHD.dtype, device=q_BHD.device)
    lse_BH = torch.empty(B if return_lse else 0, H, dtype=torch.float32, device=q_BHD.device)
    # 1. One program for all keys of a query writes its result. One for each share writes a sum, a largest score and a
    # mass.
    partial_BHSD, peak_BHS, mass_BHS = out_BHD, lse_BH, lse_BH
    if shares.at_once > 1:
        partial_BHSD = torch.empty(B, H, shares.at_once, D, dtype=torch.float32, device=q_BHD.device)
        peak_BHS = torch.empty(B, H, shares.at_once, dtype=torch.float32, device=q_BHD.device)
        mass_BHS = torch.empty_like(peak_BHS)
    into = (partial_BHSD, peak_BHS, mass_BHS)
    if B:
        _launch_attend(
            q_BHD, keys, values, block_table, rows_B, lengths_B, into, scale, window, shares, return_lse, options
        )
    # 2. The shares are added.
    if B and shares.at_once > 1:
        combine(into, lengths_B, out_BHD, lse_BH, window, shares)
    return (out_BHD, lse_BH) if return_lse else out_BHD


def _launch_attend(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    rows_B: Tensor | None,
    lengths_B: Tensor,
    into: tuple[Tensor, Tensor, Tensor],
    scale: float,
    window: int | None,
    shares: Shares,
    return_lse: bool,
    options: dict[str, Any],
) -> None:
    """One program for each query and kv head, or for each share of its keys; `into` is (sums, peaks, masses)."""
    (B, H, D), (_, K, P, _) = q_BHD.shape, keys.shape
    narrow = keys.dtype == torch.float8_e4m3fn
    values = values.view(torch.int16) if narrow else values
    _attend[(B * K, shares.at_once)](
        *(q_BHD, keys, values, block_table, lengths_B if rows_B is None else rows_B, lengths_B, *into),
        scale * _LOG2E,
        *(q_BHD.stride(0), q_BHD.stride(1)),
        *(keys.stride(0), keys.stride(1), values.stride(0), values.stride(1)),
        block_table.stride(0),
        P.bit_length() - 1,
        KV_HEADS=K,
        GROUP=H // K,
        BLOCK_G=max(16, triton.next_power_of_2(H // K)),
        D=D,
        WINDOW=window or 0,
        SHARE=shares.keys // options["BLOCK_N"],
        AT_ONCE=shares.at_once,
        HAS_ROWS=rows_B is not None,
        LSE=return_lse,
        NARROW=narrow,
        **options,
    )


def _check(q_BHD: Tensor, keys: Tensor, values: Tensor, shares: Shares, block: int) -> None:
    _, H, D = q_BHD.shape
    _, K, P, _ = keys.shape
    if D < 16 or D & (D - 1) or P & (P - 1):
        raise ValueError(f"head size {D} and page size {P} must be powers of two, the head size at least 16")
    if H % K or keys.shape != values.shape or keys.shape[3] != D:
        raise ValueError(f"queries {tuple(q_BHD.shape)}, keys {tuple(keys.shape)} and values {tuple(values.shape)}")
    if q_BHD.stride(2) != 1 or not (_rows_contiguous(keys) and _rows_contiguous(values)):
        raise ValueError("queries need a contiguous last dimension, keys and values contiguous (P, D) pages")
    if shares.keys % block or shares.at_once < 1 or (shares.at_once > 1 and not shares.keys):
        raise ValueError(f"{shares}: a share is a number of blocks of {block} keys")


def _rows_contiguous(x: Tensor) -> bool:
    return x.stride(3) == 1 and (x.shape[2] == 1 or x.stride(2) == x.shape[3])


@triton.jit
def _blocks(
    length, share, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr, SHARE: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """Oldest position in sight, and the blocks of positions of a program: from `first` to before `last`."""
    oldest = 0
    if WINDOW > 0:
        oldest = tl.maximum(length - WINDOW, 0)
    first = oldest // BLOCK_N
    last = tl.cdiv(length, BLOCK_N)
    if AT_ONCE > 1:  # the first share is the one with the oldest position
        begin = (first // SHARE + share) * SHARE
        first = tl.maximum(first, begin)
        last = tl.minimum(begin + SHARE, last)
    return oldest, first, last


@triton.jit
def _pairs_of(v_N2):
    """Even and odd columns of values in 8 bits that were read as pairs; fp16 holds them exactly."""
    even = (v_N2 & 0xFF).to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    odd = (v_N2 >> 8).to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return even, odd


@triton.jit
def _store(
    out, peaks, masses, flat_G, acc_GD, peak_G, mass_G, real_G,
    D: tl.constexpr, WHOLE: tl.constexpr, LSE: tl.constexpr,
):  # fmt: skip
    """Write the result of a query, or what `_combine` needs of a share of its keys."""
    if WHOLE:
        acc_GD = acc_GD / tl.where(mass_G > 0, mass_G, 1.0)[:, None]
        if LSE:
            lse_G = (peak_G + tl.log2(tl.where(mass_G > 0, mass_G, 1.0))) * LN2
            tl.store(peaks + flat_G, lse_G, mask=real_G)
    else:
        tl.store(peaks + flat_G, peak_G, mask=real_G)
        tl.store(masses + flat_G, mass_G, mask=real_G)
    place_GD = flat_G[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out + place_GD, acc_GD.to(out.dtype.element_ty), mask=real_G[:, None])


# The page size comes as a plain runtime number: one compiled kernel, and so one order of operations, for all of them.
@triton.jit(do_not_specialize=["page_shift"])
def _attend(
    q, keys, values, block_table, rows, lengths,
    out,  # (B, H, D), or (B, H, AT_ONCE, D) not yet divided by the mass
    peaks,  # (B, H) the lse, or (B, H, AT_ONCE) the largest score, times log2(e)
    masses,  # (B, H, AT_ONCE)
    scale,  # times log2(e)
    stride_q_B, stride_q_H, stride_k_page, stride_k_head, stride_v_page, stride_v_head, stride_table, page_shift,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    WINDOW: tl.constexpr, SHARE: tl.constexpr, AT_ONCE: tl.constexpr, HAS_ROWS: tl.constexpr, LSE: tl.constexpr,
    NARROW: tl.constexpr,
):  # fmt: skip
    """One query, the GROUP query heads of one kv head, and its keys or one share of them (SHARE blocks)."""
    # 1. Which query and kv head this is, the blocks of N positions that it takes, and the row that lists their pages.
    b = (tl.program_id(0) // KV_HEADS).to(tl.int64)
    kv = tl.program_id(0) % KV_HEADS
    length = tl.load(lengths + b).to(tl.int32)
    oldest, first, last = _blocks(length, tl.program_id(1), BLOCK_N, WINDOW, SHARE, AT_ONCE)
    if AT_ONCE > 1:  # noqa: SIM102  (a constant, and a number)
        if first >= last:  # a share behind the last key, which `_combine` does not read
            return
    row = tl.load(rows + b).to(tl.int64) if HAS_ROWS else b
    table = block_table + row * stride_table
    # 2. Queries (G, D), padded to the least number of rows that a product takes.
    g, d, n = tl.arange(0, BLOCK_G), tl.arange(0, D), tl.arange(0, BLOCK_N)
    head = kv * GROUP + g
    q_GD = tl.load(q + b * stride_q_B + head[:, None] * stride_q_H + d[None, :], mask=g[:, None] < GROUP, other=0.0)
    if NARROW:  # fp16 holds e4m3 exactly, and one instruction converts it
        q_GD = q_GD.to(tl.float16)
    # 3. An online softmax over the blocks of a share: largest score (G,), mass (G,), weighted sum of values (G, D); and
    # the same of the shares before it. In 8 bits, values are read as pairs of neighbours: the tensor cores take their
    # operands by 16 bits from shared memory, and the even and the odd columns of V (N, D/2) are separate products.
    page_mask = (1 << page_shift) - 1
    keys += kv.to(tl.int64) * stride_k_head
    values += kv.to(tl.int64) * stride_v_head
    WIDE: tl.constexpr = D // 2 if NARROW else D
    dv = tl.arange(0, WIDE)
    peak_G = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    mass_G = tl.zeros((BLOCK_G,), tl.float32)
    acc_GD = tl.zeros((BLOCK_G, WIDE), tl.float32)
    odd_GD = acc_GD
    all_peak_G, all_mass_G, all_acc_GD, all_odd_GD = peak_G, mass_G, acc_GD, odd_GD
    page = tl.load(table + ((first * BLOCK_N + n) >> page_shift), mask=first * BLOCK_N + n < length, other=0)
    for block in range(first, last):
        position = block * BLOCK_N + n
        seen = position < length
        if WINDOW > 0:
            seen = seen & (position >= oldest)
        inside = position & page_mask
        here = page.to(tl.int64)
        # Pages are looked up one block ahead, so that the loads below can be issued several blocks ahead.
        page = tl.load(table + ((position + BLOCK_N) >> page_shift), mask=position + BLOCK_N < length, other=0)
        k_ND = tl.load(keys + (here * stride_k_page + inside * D)[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        v_at = values + (here * stride_v_page + inside * WIDE)[:, None] + dv[None, :]
        v_ND = tl.load(v_at, mask=seen[:, None], other=0)
        if NARROW:
            k_ND = k_ND.to(tl.float16)
            v_ND, odd_ND = _pairs_of(v_ND)
        score_GN = tl.dot(q_GD, tl.trans(k_ND), input_precision="ieee") * scale
        score_GN = tl.where(seen[None, :], score_GN, float("-inf"))
        new_peak_G = tl.maximum(peak_G, tl.max(score_GN, axis=1))
        p_GN = tl.exp2(score_GN - new_peak_G[:, None])
        shrink_G = tl.exp2(peak_G - new_peak_G)
        mass_G = mass_G * shrink_G + tl.sum(p_GN, axis=1)
        acc_GD = tl.dot(p_GN.to(v_ND.dtype), v_ND, acc_GD * shrink_G[:, None], input_precision="ieee")
        if NARROW:
            odd_GD = tl.dot(p_GN.to(odd_ND.dtype), odd_ND, odd_GD * shrink_G[:, None], input_precision="ieee")
        peak_G = new_peak_G
        if SHARE > 0 and AT_ONCE == 1:  # noqa: SIM102
            if (block + 1) % SHARE == 0 or block + 1 == last:
                all_peak_G, before_G, now_G = weights_of(all_peak_G, peak_G)
                all_mass_G = all_mass_G * before_G + mass_G * now_G
                all_acc_GD = all_acc_GD * before_G[:, None] + acc_GD * now_G[:, None]
                if NARROW:
                    all_odd_GD = all_odd_GD * before_G[:, None] + odd_GD * now_G[:, None]
                peak_G = tl.full((BLOCK_G,), float("-inf"), tl.float32)
                mass_G = tl.zeros((BLOCK_G,), tl.float32)
                acc_GD = tl.zeros((BLOCK_G, WIDE), tl.float32)
                odd_GD = acc_GD
    if SHARE > 0 and AT_ONCE == 1:
        peak_G, mass_G, acc_GD, odd_GD = all_peak_G, all_mass_G, all_acc_GD, all_odd_GD
    if NARROW:
        acc_GD = tl.interleave(acc_GD, odd_GD)
    # 4. The result, or what `_combine` needs of this share.
    flat_G = (b * (KV_HEADS * GROUP) + head) * AT_ONCE + tl.program_id(1)
    _store(out, peaks, masses, flat_G, acc_GD, peak_G, mass_G, g < GROUP, D, AT_ONCE == 1, LSE)
