"""Σ_v π(v)² at every response token: how peaked the policy was, which the optimal token baseline weighs by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.log_probs import chunks, scaled_logits
from whet.learn.packing import pack
from whet.learn.scoring import gather, response_hidden_states
from whet.learn.sequence_parallel import own_tokens
from whet.model.load import Head, head_of
from whet.model.modality import vision_of
from whet.types import Sample


@torch.no_grad()
def sum_pi_squared(hidden_NH: Tensor, head: Head, temperature: float) -> Tensor:
    """(N,): with z = logits / temperature, Σ_v π(v)² = exp(lse(2z) − 2 lse(z)), a chunk of rows at a time."""
    parts = []
    for rows in chunks(len(hidden_NH), len(head.weight_VH)):
        z = scaled_logits(hidden_NH[rows], head.weight_VH, head.bias_V, temperature, head.softcap)
        z = z - z.amax(dim=-1, keepdim=True)  # the difference below would lose digits to a common offset
        parts.append((torch.logsumexp(2 * z, dim=-1) - 2 * torch.logsumexp(z, dim=-1)).exp())
    return torch.cat(parts)


@torch.no_grad()
def sum_pi_squared_all(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, config: ActorConfig, max_tokens: int | None
) -> Tensor:
    """Σ_v π(v)² (B, T) of all samples, in micro-batches of its own; 0 past the end of a response."""

    def peaked(micro: list[Sample]) -> Tensor:
        packed = own_tokens(model, pack(micro, config.share_prefix, model.device, vision_of(model)))
        hidden_MH = response_hidden_states(model, packed)
        return packed.unpack(sum_pi_squared(hidden_MH, head_of(model), temperature or 1.0))

    size = config.micro_batch_size_per_device_for_experience
    return gather(model, samples, config.share_prefix, max_tokens, size, peaked)
