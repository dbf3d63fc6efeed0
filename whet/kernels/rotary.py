"""Rotary positions on the fused q, k, v projection, after the RMS norm of each query and key head where there is one.

A program takes one token and a block of its heads, so a token's bits do not depend on the batch. cos and sin are
transformers': (N, D), both halves equal, of which the first is read. The turn is computed in fp32 and rounded once; the
norm before it rounds as the module does (see whet.kernels.norm).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.norm import weighted


@triton.jit
def halves(base, heads, D: tl.constexpr, mask):
    """Both halves of the heads of one token, in the buffer's dtype."""
    at = base + heads[:, None] * D + tl.arange(0, D // 2)[None, :]
    return tl.load(at, mask=mask[:, None], other=0.0), tl.load(at + D // 2, mask=mask[:, None], other=0.0)


@triton.jit
def narrowed(x, dtype: tl.constexpr):
    """Values in the dtype of a cache; those beyond e4m3 become its largest."""
    if dtype == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -448.0), 448.0)
    return x.to(dtype)


@triton.jit
def store_halves(base, heads, first, second, D: tl.constexpr, mask):
    at = base + heads[:, None] * D + tl.arange(0, D // 2)[None, :]
    tl.store(at, narrowed(first, base.dtype.element_ty), mask=mask[:, None])
    tl.store(at + D // 2, narrowed(second, base.dtype.element_ty), mask=mask[:, None])


@triton.jit
def norm_weights(q_weight_D, k_weight_D, is_query, D: tl.constexpr):
    """Both halves of each head's norm weight, (heads, D / 2)."""
    half = tl.arange(0, D // 2)
    q_first, q_second = tl.load(q_weight_D + half).to(tl.float32), tl.load(q_weight_D + D // 2 + half).to(tl.float32)
    k_first, k_second = tl.load(k_weight_D + half).to(tl.float32), tl.load(k_weight_D + D // 2 + half).to(tl.float32)
    first = tl.where(is_query[:, None], q_first[None, :], k_first[None, :])
    second = tl.where(is_query[:, None], q_second[None, :], k_second[None, :])
    return first, second


@triton.jit
def turned_halves(
    first,
    second,
    cos_ND,
    sin_ND,
    token,
    q_weight_D,
    k_weight_D,
    is_query,
    eps,
    D: tl.constexpr,
    NORM: tl.constexpr,
    OFFSET: tl.constexpr,
    INVERSE: tl.constexpr,
):
    """Both halves of every head normed (NORM), then turned by the token's angles, in fp32."""
    dtype: tl.constexpr = first.dtype
    half = tl.arange(0, D // 2)
    cos = tl.load(cos_ND + token * D + half).to(tl.float32)[None, :]
    sin = tl.load(sin_ND + token * D + half).to(tl.float32)[None, :]
    if INVERSE:
        sin = -sin
    first, second = first.to(tl.float32), second.to(tl.float32)
    if NORM:
        rstd = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / D + eps)[:, None]
        first_weight, second_weight = norm_weights(q_weight_D, k_weight_D, is_query, D)
        first = weighted(first * rstd, first_weight, OFFSET, dtype).to(dtype).to(tl.float32)
        second = weighted(second * rstd, second_weight, OFFSET, dtype).to(dtype).to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _rotate(
    source_NC,
    target_NC,
    cos_ND,
    sin_ND,
    q_weight_D,
    k_weight_D,
    eps,
    source_stride,
    target_stride,
    HEADS: tl.constexpr,
    TURNED: tl.constexpr,
    D: tl.constexpr,
    NORM: tl.constexpr,
    OFFSET: tl.constexpr,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = heads < TURNED
    first, second = halves(source_NC + token * source_stride, heads, D, inside)
    first, second = turned_halves(
        first, second, cos_ND, sin_ND, token, q_weight_D, k_weight_D, heads < HEADS, eps, D, NORM, OFFSET, INVERSE
    )
    store_halves(target_NC + token * target_stride, heads, first, second, D, inside)


@triton.jit
def _rotate_to_pages(
    qkv_NC,
    q_NHD,
    keys,
    values,
    slots_N,
    cos_ND,
    sin_ND,
    q_weight_D,
    k_weight_D,
    eps,
    stride,
    P,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    NORM: tl.constexpr,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_query, is_value = heads < HEADS, heads >= HEADS + KV
    raw_first, raw_second = halves(qkv_NC + token * stride, heads, D, heads < HEADS + 2 * KV)
    first, second = turned_halves(
        raw_first, raw_second, cos_ND, sin_ND, token, q_weight_D, k_weight_D, is_query, eps, D, NORM, OFFSET, False
    )
    store_halves(q_NHD + token * HEADS * D, heads, first, second, D, is_query)
    slot = tl.load(slots_N + token).to(tl.int64)
    kept = slot + tl.zeros_like(heads) >= 0  # a block, as the masks it meets are
    page, row = slot // P, slot % P
    base = (page * KV * P + row) * D
    store_halves(keys + base, (heads - HEADS) * P, first, second, D, kept & (heads >= HEADS) & (heads < HEADS + KV))
    value_heads = (heads - HEADS - KV) * P
    is_value = kept & is_value & (heads < HEADS + 2 * KV)
    store_halves(values + base, value_heads, raw_first, raw_second, D, is_value)


def rotate(
    qkv_NC: Tensor,
    cos_ND: Tensor,
    sin_ND: Tensor,
    heads: int,
    kv_heads: int,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """q_NHD, k_NKD, v_NKD: turned in place in `qkv_NC`; with norms q and k are new, and `qkv_NC` is for backward."""
    D = head_dim(qkv_NC, cos_ND, heads, kv_heads)
    N = qkv_NC.shape[0]
    turned = heads + kv_heads
    norm = q_norm is not None
    target_NC = qkv_NC.new_empty(N, turned * D) if norm else qkv_NC
    launch_rotate(qkv_NC, target_NC, cos_ND, sin_ND, q_norm, k_norm, eps, offset, heads, turned, D, inverse=False)
    q_NHD, k_NKD = target_NC[:, : turned * D].unflatten(1, (turned, D)).split([heads, kv_heads], dim=1)
    return q_NHD, k_NKD, qkv_NC[:, turned * D :].unflatten(1, (kv_heads, D))


def rotate_to_pages(
    qkv_NC: Tensor,
    cos_ND: Tensor,
    sin_ND: Tensor,
    heads: int,
    kv_heads: int,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
    offset: float,
    keys: Tensor,
    values: Tensor,
    slots_N: Tensor,
) -> Tensor:
    """The turned queries (N, H, D); keys and values go to slot slots_N[i] of the (pages, K, P, D) cache.

    A slot is page · P + row of the page; a token with a negative slot writes nothing.
    """
    D = head_dim(qkv_NC, cos_ND, heads, kv_heads)
    N = qkv_NC.shape[0]
    q_NHD = qkv_NC.new_empty(N, heads, D)
    if N:
        block, warps = heads_block(heads + 2 * kv_heads, D)
        grid = (N, triton.cdiv(heads + 2 * kv_heads, block))
        _rotate_to_pages[grid](
            qkv_NC,
            q_NHD,
            keys,
            values,
            slots_N,
            cos_ND.contiguous(),
            sin_ND.contiguous(),
            q_norm if q_norm is not None else qkv_NC,
            k_norm if k_norm is not None else qkv_NC,
            eps,
            qkv_NC.stride(0),
            keys.shape[2],
            heads,
            kv_heads,
            D,
            q_norm is not None,
            offset,
            block,
            num_warps=warps,
            enable_fp_fusion=False,  # training and decoding must round alike
        )
    return q_NHD


def launch_rotate(
    source_NC: Tensor,
    target_NC: Tensor,
    cos_ND: Tensor,
    sin_ND: Tensor,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
    offset: float,
    heads: int,
    turned: int,
    D: int,
    inverse: bool,
) -> None:
    N = source_NC.shape[0]
    if not N:
        return
    block, warps = heads_block(turned, D)
    _rotate[(N, triton.cdiv(turned, block))](
        source_NC,
        target_NC,
        cos_ND.contiguous(),
        sin_ND.contiguous(),
        q_norm if q_norm is not None else source_NC,
        k_norm if k_norm is not None else source_NC,
        eps,
        source_NC.stride(0),
        target_NC.stride(0),
        heads,
        turned,
        D,
        q_norm is not None,
        offset,
        inverse,
        block,
        num_warps=warps,
        enable_fp_fusion=False,  # training and decoding must round alike
    )


def heads_block(heads: int, D: int) -> tuple[int, int]:
    """Heads of a program, at most 4096 values, and its warps: 16 values a thread."""
    block = min(triton.next_power_of_2(heads), max(1, 4096 // D))
    return block, max(1, min(8, block * D // 512))


def head_dim(qkv_NC: Tensor, cos_ND: Tensor, heads: int, kv_heads: int) -> int:
    """The head dimension, after checking that the shapes belong together."""
    D, rest = divmod(qkv_NC.shape[1], heads + 2 * kv_heads)
    if rest or D & (D - 1) or cos_ND.shape != (qkv_NC.shape[0], D) or qkv_NC.stride(-1) != 1:
        raise ValueError(
            f"qkv {tuple(qkv_NC.shape)} of {heads} + 2 · {kv_heads} heads, cos {tuple(cos_ND.shape)}: "
            "the head dimension must be a power of two, and cos and sin (tokens, head dimension)"
        )
    return D
