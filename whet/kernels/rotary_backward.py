"""The gradient of the fused q, k, v projection through the turn, and the norms, of whet.kernels.rotary."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.rotary import halves, head_dim, heads_block, launch_rotate, norm_weights, store_halves, turned_halves

# Programs of a backward pass with norms: a constant, so that the weights' gradients are summed in one order everywhere.
_BACKWARD_PROGRAMS = 1056


@triton.jit
def _store_sums(partial_PB2D, first_sum, second_sum, is_query, is_key, D: tl.constexpr):
    """Write the sums over query heads and over key heads of a program, both halves of each."""
    half = tl.arange(0, D // 2)
    partial = partial_PB2D + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * 2 * D + half
    of_query, of_key = is_query[:, None], is_key[:, None]
    tl.store(partial, tl.sum(tl.where(of_query, first_sum, 0.0), axis=0))
    tl.store(partial + D // 2, tl.sum(tl.where(of_query, second_sum, 0.0), axis=0))
    tl.store(partial + D, tl.sum(tl.where(of_key, first_sum, 0.0), axis=0))
    tl.store(partial + D + D // 2, tl.sum(tl.where(of_key, second_sum, 0.0), axis=0))


@triton.jit(do_not_specialize=["N", "P"])
def _rotate_norm_backward(
    grad_NC, qkv_NC, cos_ND, sin_ND, q_weight_D, k_weight_D, partial_PB2D, eps, N, P, C,
    HEADS: tl.constexpr, TURNED: tl.constexpr, D: tl.constexpr, OFFSET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of one block of heads, token by token, and this program's part of the norms' weight gradients."""
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, is_query = heads < TURNED, heads < HEADS
    first_weight, second_weight = norm_weights(q_weight_D, k_weight_D, is_query, D)
    first_sum = tl.zeros([BLOCK, D // 2], dtype=tl.float32)
    second_sum = tl.zeros([BLOCK, D // 2], dtype=tl.float32)
    start = tl.program_id(0).to(tl.int64)
    for step in tl.range(0, tl.cdiv(N - tl.program_id(0), P), num_stages=2):
        token = start + step * P
        first, second = halves(qkv_NC + token * C, heads, D, inside)
        dtype: tl.constexpr = first.dtype
        first, second = first.to(tl.float32), second.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / D + eps)[:, None]
        first, second = first * rstd, second * rstd
        grad_first, grad_second = halves(grad_NC + token * C, heads, D, inside)
        grad_first, grad_second = turned_halves(
            grad_first,
            grad_second,
            cos_ND,
            sin_ND,
            token,
            q_weight_D,
            k_weight_D,
            is_query,
            eps,
            D,
            False,
            OFFSET,
            True,
        )
        if OFFSET == 0.0:
            first_sum += grad_first * first.to(dtype).to(tl.float32)
            second_sum += grad_second * second.to(dtype).to(tl.float32)
        else:
            first_sum += grad_first * first
            second_sum += grad_second * second
        grad_first, grad_second = grad_first * (first_weight + OFFSET), grad_second * (second_weight + OFFSET)
        mean = (tl.sum(grad_first * first + grad_second * second, axis=1) / D)[:, None]
        store_halves(
            grad_NC + token * C,
            heads,
            rstd * (grad_first - first * mean),
            rstd * (grad_second - second * mean),
            D,
            inside,
        )
    _store_sums(partial_PB2D, first_sum, second_sum, is_query, inside & (heads >= HEADS), D)


def rotate_backward_(
    grad_NC: Tensor,
    qkv_NC: Tensor | None,
    cos_ND: Tensor,
    sin_ND: Tensor,
    heads: int,
    kv_heads: int,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor] | None:
    """Turn the gradients of q, k, v in `grad_NC` into those of the projection, in place.

    Returns the fp32 gradients of the norms' weights where there are norms; `qkv_NC`, the projection's output before
    them, is needed only then.
    """
    D = head_dim(grad_NC, cos_ND, heads, kv_heads)
    turned = heads + kv_heads
    if q_norm is None or k_norm is None or qkv_NC is None:
        launch_rotate(grad_NC, grad_NC, cos_ND, sin_ND, None, None, eps, offset, heads, turned, D, inverse=True)
        return None
    N, C = grad_NC.shape
    block, warps = heads_block(turned, D)
    blocks, programs = triton.cdiv(turned, block), min(N, _BACKWARD_PROGRAMS)
    partial_PB2D = torch.zeros(programs, blocks, 2, D, dtype=torch.float32, device=grad_NC.device)
    if N:
        _rotate_norm_backward[(programs, blocks)](
            grad_NC,
            qkv_NC,
            cos_ND.contiguous(),
            sin_ND.contiguous(),
            q_norm,
            k_norm,
            partial_PB2D,
            eps,
            N,
            programs,
            C,
            heads,
            turned,
            D,
            offset,
            block,
            num_warps=warps,
        )
    grad_q_D, grad_k_D = partial_PB2D.sum((0, 1))
    return grad_q_D, grad_k_D
