"""Log-probs and entropies of responses under a model, with or without gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.log_probs import token_log_probs
from whet.learn.packing import Packed, pack
from whet.learn.partition import passes
from whet.learn.ranks import ranks_of
from whet.learn.sequence_parallel import own_tokens
from whet.model.gathering import part
from whet.model.load import Head, head_of, hidden_states
from whet.model.modality import vision_of
from whet.types import Sample


@dataclass(frozen=True, slots=True)
class Scored:
    """A packed micro-batch after its forward pass; values are (B, T), 0 past the end of a response."""

    log_probs_BT: Tensor
    entropy_BT: Tensor
    packed: Packed
    hidden_MH: Tensor  # what predicts each response token, for measures that not every loss wants
    head: Head


def score(model: PreTrainedModel, samples: Sequence[Sample], temperature: float, share_prefix: bool) -> Scored:
    """Log-probs and entropies of one packed micro-batch."""
    packed = own_tokens(model, pack(samples, share_prefix, model.device, vision_of(model)))
    hidden_MH = response_hidden_states(model, packed)
    head = head_of(model)
    # Greedy sampling has no temperature to divide by; its log-probs are those of the plain distribution.
    log_probs_M, entropy_M = token_log_probs(hidden_MH, head, packed.targets_M, temperature or 1.0)
    return Scored(packed.unpack(log_probs_M), packed.unpack(entropy_M), packed, hidden_MH, head)


def response_hidden_states(model: PreTrainedModel, packed: Packed) -> Tensor:
    """(M, H): the hidden state that predicts each response token."""
    return hidden_states(model, packed.ids_N, packed.positions_N, packed.attention, packed.media)[packed.rows_M]


@torch.no_grad()
def score_all(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    temperature: float,
    config: ActorConfig,
    max_tokens: int | None,
    measure: Callable[[Scored], Tensor] = attrgetter("log_probs_BT"),
) -> Tensor:
    """A measure of all samples (B, T), their log-probs unless told otherwise; no gradient, micro-batches of its own."""
    size, share = config.micro_batch_size_per_device_for_experience, config.share_prefix
    return gather(
        model, samples, share, max_tokens, size, lambda micro: measure(score(model, micro, temperature, share))
    )


def gather(
    model: nn.Module,
    samples: Sequence[Sample],
    share_prefix: bool,
    max_tokens: int | None,
    max_samples: int,
    values_of: Callable[[list[Sample]], Tensor],
) -> Tensor:
    """(B, T) on the host in fp32 of what is computed a micro-batch at a time; none waits for the one before it.

    The ranks that hold the model each compute a share of the samples, and all get the values of all.
    """
    ranks = ranks_of(model)
    planned = passes(ranks, samples, share_prefix, max_tokens, max_samples)
    found = [(rows, values_of([samples[i] for i in rows]), counts) for rows, counts in planned.all()]
    part(model)
    out = torch.zeros(len(samples), max(len(s.ids) for s in samples))
    for rows, values, counts in found:
        if counts:
            out[rows, : values.shape[1]] = values.float().cpu()
    return ranks.added(out)
