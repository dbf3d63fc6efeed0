"""Sample tokens from logits on the device: one uniform number a row, and the log-prob of the drawn token.

The cumulative distribution is inverted in the order of the vocabulary: first the chunk, then the token in it. A row's
result depends on its own logits and its own number only. Left out: top-k, top-p and min-p, which need another order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from whet.kernels.log_probs import CHUNK, ONE, block_of_chunks, chunk_statistics, finite_peak, scaled, whole_row


def sample(logits_BV: Tensor, temperature: float, uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (B,) and their log-probs (B,) in fp32 at this temperature; uniforms_B in [0, 1) in fp64.

    Temperature 0 takes the likeliest token, the first of equals, with its log-prob at temperature 1. A token without
    probability is never picked. Nothing is read by the host: the call can be part of a CUDA graph.
    """
    B, V = logits_BV.shape
    temperature_or_1 = temperature or 1.0
    peaks_BC, masses_BC, _ = chunk_statistics(logits_BV, temperature_or_1)
    C = peaks_BC.shape[1]
    tokens_B = torch.empty(B, dtype=torch.int64, device=logits_BV.device)
    log_probs_B = torch.empty(B, dtype=torch.float32, device=logits_BV.device)
    if B:
        _pick[(B,)](
            logits_BV,
            peaks_BC,
            masses_BC,
            uniforms_B,
            tokens_B,
            log_probs_B,
            1.0 / temperature_or_1,
            logits_BV.stride(0),
            V,
            C,
            CHUNK=CHUNK,
            BLOCK_C=block_of_chunks(C),
            GREEDY=temperature == 0.0,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return tokens_B, log_probs_B


@triton.jit
def _first(found, index):
    """The smallest index where something was found, or a number larger than all of them."""
    return tl.min(tl.where(found, index, 2**30), axis=0)


@triton.jit
def _last(found, index):
    return tl.max(tl.where(found, index, 0), axis=0)


@triton.jit
def _pick(
    logits,
    peaks,
    masses,
    uniforms,
    tokens,
    log_probs,
    inverse,
    stride,
    V,
    C,
    CHUNK: tl.constexpr,
    BLOCK_C: tl.constexpr,
    GREEDY: tl.constexpr,
):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK_C)
    n = tl.arange(0, CHUNK)
    peak_C, weight_C, share_C, peak, lse = whole_row(peaks, masses, row, C, BLOCK_C)
    if GREEDY:
        which = _first(peak_C == peak, c)
    else:
        goal = (tl.sum(share_C, axis=0).to(tl.float64) * tl.load(uniforms + row)).to(tl.int64)
        which = _first(tl.cumsum(share_C, axis=0) > goal, c)
    # Rounding may carry the goal to the very end: then the last that has probability, and never past the vocabulary.
    which = tl.where(which < C, which, _last(share_C > 0, c))

    z = scaled(logits, row, stride, V, which * CHUNK + n, inverse)
    if GREEDY:
        found = _first(z == peak, n)
        possible = z == peak
    else:
        chunk_peak = tl.sum(tl.where(c == which, peak_C, 0.0), axis=0)
        weight = tl.sum(tl.where(c == which, weight_C, 0.0), axis=0)
        rest = (goal - tl.sum(tl.where(c < which, share_C, 0), axis=0)).to(tl.float64) / ONE
        e = tl.exp(z - finite_peak(chunk_peak))
        possible = e > 0.0
        found = _first((tl.cumsum(e.to(tl.float64), axis=0) * weight.to(tl.float64) > rest) & possible, n)
    found = tl.where(found < CHUNK, found, _last(possible, n))
    tl.store(tokens + row, (which * CHUNK + found).to(tl.int64))
    tl.store(log_probs + row, tl.sum(tl.where(n == found, z, 0.0), axis=0) - lse)
