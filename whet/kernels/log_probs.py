"""Log-probs, entropies and their gradient from a buffer of logits, each in one pass over it.

A row of logits is reduced in chunks of a fixed size, and the chunks of a row are added up in fixed point, where order
does not matter. The sampler takes the same two steps: from the same logits it gets the same log-probs, to the bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 4096  # logits a program reads
ONE = tl.constexpr(2.0**42)  # 1 in fixed point: sums of exp(z − peak) over 2 million tokens still fit into 63 bits
# Fused multiply-adds are off: whether two roundings become one must not depend on the kernel around them.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


def row_statistics(
    logits_NV: Tensor, targets_N: Tensor, temperature: float, want_entropy: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute from z = logits / temperature: targets' log-probs, log Σ exp z, entropy if wanted; (N,) in fp32."""
    peaks_NC, masses_NC, moments_NC = chunk_statistics(logits_NV, temperature, want_entropy)
    N, C = peaks_NC.shape
    # Each its own allocation: triton compiles a kernel again for pointers that are less aligned.
    lse_N = torch.empty(N, dtype=torch.float32, device=logits_NV.device)
    log_probs_N = torch.empty_like(lse_N)
    entropy_N = torch.empty_like(lse_N) if want_entropy else None
    if N:
        _row_statistics[(N,)](
            logits_NV,
            targets_N,
            peaks_NC,
            masses_NC,
            moments_NC,
            log_probs_N,
            lse_N,
            entropy_N,
            1.0 / temperature,
            logits_NV.stride(0),
            C,
            BLOCK_C=block_of_chunks(C),
            ENTROPY=want_entropy,
            num_warps=1,
            enable_fp_fusion=False,
        )
    return log_probs_N, lse_N, entropy_N


def logit_gradient_(
    logits_NV: Tensor,
    targets_N: Tensor,
    lse_N: Tensor,
    entropy_N: Tensor | None,
    grad_log_probs_N: Tensor | None,
    grad_entropy_N: Tensor | None,
    temperature: float,
) -> None:
    """Turn the logits, in place, into the gradient by them, given the gradients by log-probs and entropies.

    With p = softmax(z), z = logits / T:  ∂log p_t/∂z = onehot_t − p  and  ∂H/∂z = −p (log p + H).
    """
    N, V = logits_NV.shape
    _check(logits_NV)
    if grad_entropy_N is not None and entropy_N is None:
        raise ValueError("the gradient by the entropy needs the entropy")
    if N:
        C = triton.cdiv(V, CHUNK)
        _logit_gradient[(N * C,)](
            logits_NV,
            targets_N,
            lse_N,
            entropy_N,
            grad_log_probs_N,
            grad_entropy_N,
            1.0 / temperature,
            logits_NV.stride(0),
            V,
            C,
            CHUNK=CHUNK,
            BY_LOG_PROB=grad_log_probs_N is not None,
            BY_ENTROPY=grad_entropy_N is not None,
            **_OPTIONS,
        )


def chunk_statistics(
    logits_NV: Tensor, temperature: float, want_moment: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute per chunk of z = logits / temperature: max z, Σ exp(z − max), Σ exp(z − max)·(z − max); (N, C) fp32."""
    N, V = logits_NV.shape
    _check(logits_NV)
    C = triton.cdiv(V, CHUNK)
    peaks_NC = torch.empty(N, C, dtype=torch.float32, device=logits_NV.device)
    masses_NC = torch.empty_like(peaks_NC)
    moments_NC = torch.empty_like(peaks_NC) if want_moment else None
    if N:
        _chunk_statistics[(N * C,)](
            logits_NV,
            peaks_NC,
            masses_NC,
            moments_NC,
            1.0 / temperature,
            logits_NV.stride(0),
            V,
            C,
            CHUNK=CHUNK,
            MOMENT=want_moment,
            **_OPTIONS,
        )
    return peaks_NC, masses_NC, moments_NC


def block_of_chunks(chunks: int) -> int:
    """Size of the block that holds the statistics of all chunks of a row."""
    return max(16, triton.next_power_of_2(chunks))


def _check(logits_NV: Tensor) -> None:
    if logits_NV.stride(1) != 1:
        raise ValueError("the logits of a row must lie next to each other")


@triton.jit
def scaled(logits, row, stride, V, offsets, inverse):
    """z = logits / T of one row at some offsets, in fp32; −inf past the end of the vocabulary."""
    x = tl.load(logits + row.to(tl.int64) * stride + offsets, mask=offsets < V, other=float("-inf"))
    return x.to(tl.float32) * inverse


@triton.jit
def finite_peak(peak):
    """The largest logit to subtract; 0 where all of them are −inf."""
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit
def whole_row(peaks, masses, row, C, BLOCK_C: tl.constexpr):
    """Put a row together: peak and weight of each chunk, its share of Σ exp(z − peak), the row's peak, its lse."""
    c = tl.arange(0, BLOCK_C)
    at = row.to(tl.int64) * C + c
    peak_C = tl.load(peaks + at, mask=c < C, other=float("-inf"))
    mass_C = tl.load(masses + at, mask=c < C, other=0.0)
    peak = tl.max(peak_C, axis=0)
    weight_C = tl.exp(peak_C - finite_peak(peak))
    share_C = (mass_C.to(tl.float64) * weight_C.to(tl.float64) * ONE).to(tl.int64)
    lse = finite_peak(peak) + tl.log((tl.sum(share_C, axis=0).to(tl.float64) / ONE).to(tl.float32))
    mass = tl.sum(mass_C, axis=0)
    lse = tl.where(mass == mass, lse, mass)  # integers would hide a NaN
    return peak_C, weight_C, share_C, peak, lse


@triton.jit
def _chunk_statistics(logits, peaks, masses, moments, inverse, stride, V, C, CHUNK: tl.constexpr, MOMENT: tl.constexpr):
    i = tl.program_id(0)
    z = scaled(logits, i // C, stride, V, (i % C) * CHUNK + tl.arange(0, CHUNK), inverse)
    peak = tl.max(z, axis=0)
    shifted = z - finite_peak(peak)
    e = tl.exp(shifted)
    tl.store(peaks + i, peak)
    tl.store(masses + i, tl.sum(e, axis=0))
    if MOMENT:
        tl.store(moments + i, tl.sum(tl.where(e == 0.0, 0.0, e * shifted), axis=0))


# Targets are cut from a longer row, where an odd one is aligned to 8 bytes only: no reason to compile once more.
@triton.jit(do_not_specialize_on_alignment=["targets"])
def _row_statistics(
    logits,
    targets,
    peaks,
    masses,
    moments,
    log_probs,
    lses,
    entropies,
    inverse,
    stride,
    C,
    BLOCK_C: tl.constexpr,
    ENTROPY: tl.constexpr,
):
    row = tl.program_id(0)
    peak_C, weight_C, share_C, peak, lse = whole_row(peaks, masses, row, C, BLOCK_C)
    target = tl.load(logits + row.to(tl.int64) * stride + tl.load(targets + row)).to(tl.float32) * inverse
    tl.store(lses + row, lse)
    tl.store(log_probs + row, target - lse)
    if ENTROPY:  # H = lse − Σ p z, with z counted from the row's peak
        c = tl.arange(0, BLOCK_C)
        moment_C = tl.load(moments + row.to(tl.int64) * C + c, mask=c < C, other=0.0)
        gap_C = tl.where(weight_C == 0.0, 0.0, peak_C - finite_peak(peak))
        total = tl.sum(share_C, axis=0).to(tl.float64) / ONE
        share_C = share_C.to(tl.float64) / ONE
        mean = (
            tl.sum(moment_C.to(tl.float64) * weight_C.to(tl.float64) + gap_C.to(tl.float64) * share_C, axis=0) / total
        )
        tl.store(entropies + row, tl.log(total.to(tl.float32)) - mean.to(tl.float32))


@triton.jit(do_not_specialize_on_alignment=["targets"])
def _logit_gradient(
    logits,
    targets,
    lses,
    entropies,
    grad_log_probs,
    grad_entropies,
    inverse,
    stride,
    V,
    C,
    CHUNK: tl.constexpr,
    BY_LOG_PROB: tl.constexpr,
    BY_ENTROPY: tl.constexpr,
):
    i = tl.program_id(0)
    row = i // C
    offsets = (i % C) * CHUNK + tl.arange(0, CHUNK)
    log_p = scaled(logits, row, stride, V, offsets, inverse) - tl.load(lses + row)
    p = tl.exp(log_p)
    grad = tl.zeros((CHUNK,), tl.float32)
    if BY_LOG_PROB:
        by_log_prob = tl.load(grad_log_probs + row)
        grad += tl.where(offsets == tl.load(targets + row), by_log_prob, 0.0) - p * by_log_prob
    if BY_ENTROPY:
        plus_entropy = tl.where(p == 0.0, 0.0, log_p + tl.load(entropies + row))
        grad -= tl.load(grad_entropies + row) * p * plus_entropy
    to = logits + row.to(tl.int64) * stride + offsets
    tl.store(to, (grad * inverse).to(logits.dtype.element_ty), mask=offsets < V)
