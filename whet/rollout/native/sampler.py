"""From logits to tokens, one uniform number a token.

The log-prob that comes back is that of the whole distribution at the sampling temperature, before top-k, top-p and
min-p cut it: the learner computes the same quantity, so the two can be compared and divided.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from whet.rollout.engine import SamplingParams


def sample_alike(logits_BV: Tensor, temperature: float, uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (B,) and their log-probs (B,), all rows at one temperature and without filters.

    Nothing here comes from the host, so that it can be part of a CUDA graph.
    """
    logits_BV = logits_BV.float()
    if temperature not in (0.0, 1.0):
        logits_BV = logits_BV / temperature
    log_normaliser = torch.logsumexp(logits_BV, dim=-1, keepdim=True)
    if temperature == 0.0:
        tokens = logits_BV.argmax(dim=-1)
    else:
        tokens = _pick(torch.exp(logits_BV - log_normaliser), uniforms_B)
    return tokens, (logits_BV.gather(1, tokens[:, None]) - log_normaliser).squeeze(1)


def sample(logits_BV: Tensor, params: Seq[SamplingParams], uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (B,) and their log-probs (B,); row i follows params[i]."""
    if len({p.temperature for p in params}) == 1 and not any(p.filters for p in params):
        return sample_alike(logits_BV, params[0].temperature, uniforms_B)
    logits_BV = logits_BV.float()
    temperature = [p.temperature for p in params]
    if any(t not in (0.0, 1.0) for t in temperature):
        divisor = torch.tensor([t or 1.0 for t in temperature], device=logits_BV.device)
        logits_BV = logits_BV / divisor[:, None]
    log_normaliser = torch.logsumexp(logits_BV, dim=-1, keepdim=True)
    probs_BV = torch.exp(logits_BV - log_normaliser)
    if any(p.filters for p in params):
        tokens = _pick(_cut(probs_BV, params), uniforms_B)
    else:
        tokens = _pick(probs_BV, uniforms_B)
    if 0.0 in temperature:
        greedy = torch.tensor([t == 0.0 for t in temperature], device=logits_BV.device)
        tokens = torch.where(greedy, logits_BV.argmax(dim=-1), tokens)
    log_probs = (logits_BV.gather(1, tokens[:, None]) - log_normaliser).squeeze(1)
    return tokens, log_probs


def _pick(probs_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """Invert the cumulative distribution: first find the chunk of the vocabulary, then the token inside it."""
    B, V = probs_BV.shape
    chunk = next((c for c in (256, 192, 128, 64, 32) if V % c == 0 and 4 * c < V), V)
    chunks = probs_BV.view(B, V // chunk, chunk)
    cdf = chunks.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    # Below the total even when the product rounds up to it: past it there may be only tokens without probability.
    total = cdf[:, -1:]
    target = torch.minimum(uniforms_B[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    which = torch.searchsorted(cdf, target, right=True).clamp_(max=cdf.shape[1] - 1)
    below = torch.where(which > 0, cdf.gather(1, (which - 1).clamp(min=0)), torch.zeros_like(target))
    rows = torch.arange(B, device=probs_BV.device)
    inner = chunks[rows, which.squeeze(1)].double().cumsum(dim=-1)
    # Rounding must never step past the last token that has probability.
    rest = torch.minimum(target - below, inner[:, -1:] * (1 - 1e-12)).clamp_(min=0)
    token = torch.searchsorted(inner, rest, right=True).clamp_(max=chunk - 1)
    return (which * chunk + token).squeeze(1)


def _cut(probs_BV: Tensor, params: Seq[SamplingParams]) -> Tensor:
    """Zero the probability of tokens that top-k, top-p or min-p leave out."""
    device = probs_BV.device
    V = probs_BV.shape[1]
    ordered, index = probs_BV.sort(dim=-1, descending=True, stable=True)
    top_k = torch.tensor([p.top_k if 0 < p.top_k < V else V for p in params], device=device)
    top_p = torch.tensor([p.top_p for p in params], device=device, dtype=torch.float64)
    min_p = torch.tensor([p.min_p for p in params], device=device)
    kept = ordered.where(torch.arange(V, device=device) < top_k[:, None], 0.0)
    total = kept.sum(dim=-1, keepdim=True, dtype=torch.float64)
    before = kept.double().cumsum(dim=-1) - kept  # mass of the likelier tokens
    kept = kept.where((before < top_p[:, None] * total) | (top_p[:, None] >= 1.0), 0.0)
    kept = kept.where(ordered >= min_p[:, None] * ordered[:, :1], 0.0)
    return torch.zeros_like(probs_BV).scatter_(1, index, kept)
