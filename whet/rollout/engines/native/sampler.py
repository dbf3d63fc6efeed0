"""Sample tokens from logits, one uniform number a token.

The log-prob that comes back is that of the whole distribution at the sampling temperature, before top-k, top-p and
min-p cut it: the learner computes the same quantity, so the two can be compared and divided. The same holds for tokens
that are never sampled, such as those that stand for images.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor
from transformers import PretrainedConfig

from whet.model.modality import placeholder_ids
from whet.rollout.engine import SamplingParams


def never_sampled(config: PretrainedConfig, device: torch.device) -> Tensor | None:
    """Ids that no response of a model may hold, or None where all may be sampled."""
    ids = placeholder_ids(config)
    return torch.tensor(ids, device=device) if ids else None


def sample_alike(
    logits_BV: Tensor, temperature: float, uniforms_B: Tensor, never: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token ids (B,) and their log-probs (B,), all rows at one temperature and without filters."""
    logits_BV = logits_BV.float()
    if temperature not in (0.0, 1.0):
        logits_BV = logits_BV / temperature
    log_normaliser = torch.logsumexp(logits_BV, dim=-1, keepdim=True)
    possible_BV = without(logits_BV, never)
    if temperature == 0.0:
        tokens = possible_BV.argmax(dim=-1)
    else:
        tokens = pick(torch.exp(possible_BV - log_normaliser), uniforms_B)
    return tokens, (logits_BV.gather(1, tokens[:, None]) - log_normaliser).squeeze(1)


def sample(
    logits_BV: Tensor, params: Seq[SamplingParams], uniforms_B: Tensor, never: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token ids (B,) and their log-probs (B,); row i follows params[i], and no token is one of `never`."""
    filtered = any(p.filters for p in params)
    if len({p.temperature for p in params}) == 1 and not filtered:
        return sample_alike(logits_BV, params[0].temperature, uniforms_B, never)
    from whet.rollout.engines.native.sampling_rows import SamplingRows, sample_rows

    return sample_rows(logits_BV, SamplingRows.of(params, logits_BV.device), uniforms_B, filtered, never)


def likeliest(logits_V: Tensor, params: SamplingParams) -> list[tuple[int, float]]:
    """The `top_logprobs` likeliest tokens with their log-probs, on the scale of those that `sample` returns."""
    log_probs_V = torch.log_softmax(logits_V.float() / (params.temperature or 1.0), dim=-1)
    values, tokens = log_probs_V.topk(min(params.top_logprobs, log_probs_V.shape[0]))
    return list(zip(tokens.tolist(), values.tolist()))


def without(logits_BV: Tensor, never: Tensor | None) -> Tensor:
    return logits_BV if never is None else logits_BV.index_fill(1, never, float("-inf"))


def pick(probs_BV: Tensor, uniforms_B: Tensor) -> Tensor:
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
