"""Measures of whole token distributions, from hidden states: exact KL divergence and Σ_v π(v)².

Like log-probs, they are computed a chunk of rows at a time, and again in the backward pass: logits of all tokens never
exist at once. M is the number of response tokens, H the hidden size, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.log_probs import chunks, scaled_logits
from whet.learn.packing import pack
from whet.learn.scoring import gather, packed_row, response_hidden_states
from whet.model.load import Head, head_of
from whet.model.modality import vision_of
from whet.types import Sample


def full_kl(hidden_MH: Tensor, head: Head, ref_hidden_MH: Tensor, ref_head: Head, temperature: float) -> Tensor:
    """Return Σ_v π(v)·log(π(v)/π_ref(v)) of each row: (M,) in fp32, or in fp64 if the hidden states are.

    π = softmax(logits / temperature) of either model. The gradient flows into the first.
    """

    def kl_of(hidden: Tensor, ref_hidden: Tensor) -> Tensor:
        log_p, log_q = (
            scaled_logits(h, each.weight_VH, each.bias_V, temperature, each.softcap).log_softmax(dim=-1)
            for h, each in ((hidden, head), (ref_hidden, ref_head))
        )
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1)

    parts = [
        checkpoint(kl_of, hidden_MH[rows], ref_hidden_MH[rows], use_reentrant=False, preserve_rng_state=False)
        for rows in chunks(len(hidden_MH), 2 * len(head.weight_VH))
    ]
    return torch.cat(parts)


@torch.no_grad()
def masked_kl_all(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    masked: Sequence[Sample],
    temperature: float,
    config: ActorConfig,
    max_tokens: int | None,
) -> Tensor:
    """Return KL(π(·|prompt) ‖ π(·|masked prompt)) (B, T) of all samples, 0 past the end of a response.

    `masked` are the same responses to prompts of the same tokens and other images. Each micro-batch goes through the
    model twice.
    """
    originals = {id(twin): sample for sample, twin in zip(samples, masked)}
    share = config.share_prefix

    def kl_of(micro: list[Sample]) -> Tensor:
        pair = ([originals[id(twin)] for twin in micro], micro)
        rows = [pack(each, share, model.device, vision_of(model)) for each in pair]
        plain_MH, masked_MH = (response_hidden_states(model, packed) for packed in rows)
        head = head_of(model)
        return rows[0].unpack(full_kl(plain_MH, head, masked_MH, head, temperature or 1.0))

    # Cut by the masked prompts, of which there may be one for each sample: both rows then fit.
    return gather(model, masked, share, max_tokens, config.micro_batch_size_per_device_for_experience, kl_of)


@torch.no_grad()
def sum_pi_squared(hidden_MH: Tensor, head: Head, temperature: float) -> Tensor:
    """Return (M,): with z = logits / temperature, Σ_v π(v)² = exp(lse(2z) − 2 lse(z))."""
    parts = []
    for rows in chunks(len(hidden_MH), len(head.weight_VH)):
        z_MV = scaled_logits(hidden_MH[rows], head.weight_VH, head.bias_V, temperature, head.softcap)
        z_MV = z_MV - z_MV.amax(dim=-1, keepdim=True)  # the difference below would lose digits to a common offset
        parts.append((torch.logsumexp(2 * z_MV, dim=-1) - 2 * torch.logsumexp(z_MV, dim=-1)).exp())
    return torch.cat(parts)


@torch.no_grad()
def sum_pi_squared_all(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, config: ActorConfig, max_tokens: int | None
) -> Tensor:
    """Return Σ_v π(v)² (B, T) of all samples, 0 past the end of a response."""

    def peaked(micro: list[Sample]) -> Tensor:
        packed = packed_row(model, micro, config.share_prefix)
        hidden_MH = response_hidden_states(model, packed)
        return packed.unpack(sum_pi_squared(hidden_MH, head_of(model), temperature or 1.0))

    size = config.micro_batch_size_per_device_for_experience
    return gather(model, samples, config.share_prefix, max_tokens, size, peaked)
