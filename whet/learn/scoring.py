"""Log-probs and entropies of responses under a model, with or without gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.actor import ActorConfig
from whet.learn.log_probs import token_log_probs
from whet.learn.packing import micro_batches, pack
from whet.model.load import head_of, hidden_states
from whet.types import Sample


def response_log_probs(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, share_prefix: bool
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (B, T) of one packed micro-batch; 0 past the end of a response."""
    packed = pack(samples, share_prefix, model.device)
    hidden_NH = hidden_states(model, packed.ids_N, packed.positions_N, packed.attention)
    # Greedy sampling has no temperature to divide by; its log-probs are those of the plain distribution.
    log_probs_M, entropy_M = token_log_probs(
        hidden_NH[packed.rows_M], head_of(model), packed.targets_M, temperature or 1.0
    )
    return packed.unpack(log_probs_M), packed.unpack(entropy_M)


@torch.no_grad()
def score_all(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, config: ActorConfig, max_tokens: int | None
) -> Tensor:
    """Log-probs (B, T) of all samples without gradient, in micro-batches of its own."""
    out = torch.zeros(len(samples), max(len(s.ids) for s in samples))
    size = config.micro_batch_size_per_device_for_experience
    for rows in micro_batches(samples, config.share_prefix, max_tokens, size):
        log_probs, _ = response_log_probs(model, [samples[i] for i in rows], temperature, config.share_prefix)
        out[rows, : log_probs.shape[1]] = log_probs.cpu()
    return out
