"""Log-probs and entropies of responses under a model, with or without gradient.

B samples with responses of at most T tokens are one packed row of N tokens, of which M are response tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.log_probs import token_log_probs
from whet.learn.packing import Packed, pack
from whet.learn.partition import passes
from whet.learn.ranks import ranks_of
from whet.model.gathering import part
from whet.model.load import Head, head_of, hidden_states
from whet.model.modality import vision_of
from whet.model.pass_modes import replays, rounding_of
from whet.types import Sample

if TYPE_CHECKING:
    from whet.learn.reference import LocalReference
    from whet.learn.teacher import LocalTeacher


@dataclass(frozen=True, slots=True)
class Scored:
    """A packed micro-batch after its forward pass; (B, T) values are 0 past the end of a response."""

    log_probs_BT: Tensor
    entropy_BT: Tensor
    packed: Packed
    hidden_MH: Tensor  # the hidden state that predicts each response token, for measures that not every loss needs
    head: Head
    reference: LocalReference | None = None  # for losses with an exact KL divergence
    teacher: LocalTeacher | None = None  # for losses with a divergence from a teacher


def score(model: PreTrainedModel, samples: Sequence[Sample], temperature: float, share_prefix: bool) -> Scored:
    """Compute log-probs and entropies of one packed micro-batch."""
    # 1. Pack: B ragged samples → one row of N tokens.
    packed = packed_row(model, samples, share_prefix)
    # 2. Decoder: (N,) ids → (N, H) → the M hidden states that predict response tokens.
    hidden_MH = response_hidden_states(model, packed)
    # 3. Head, a chunk of rows at a time: (M, H) → (M,). Greedy sampling has no temperature to divide by; its log-probs
    #    are those of the plain distribution.
    head = head_of(model)
    log_probs_M, entropy_M = token_log_probs(hidden_MH, head, packed.targets_M, temperature or 1.0)
    # 4. Unpack: (M,) → (B, T).
    return Scored(packed.unpack(log_probs_M), packed.unpack(entropy_M), packed, hidden_MH, head)


def packed_row(model: PreTrainedModel, samples: Sequence[Sample], share_prefix: bool) -> Packed:
    """Pack samples for a model; where ranks share rows (sequence parallelism), return this rank's tokens."""
    packed = pack(samples, share_prefix, model.device, vision_of(model))
    if (group := ranks_of(model).sequence) is None:
        return packed
    from whet.learn.sequence_parallel import own_tokens

    return own_tokens(packed, group)


def response_hidden_states(model: PreTrainedModel, packed: Packed) -> Tensor:
    """Return (M, H): the hidden state that predicts each response token."""
    routing = packed.routing if replays(model) else None
    row = (packed.ids_N, packed.positions_N, packed.attention, packed.media)
    with rounding_of(model):
        return hidden_states(model, *row, routing)[packed.rows_M]


@torch.no_grad()
def score_all(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    temperature: float,
    config: ActorConfig,
    max_tokens: int | None,
    measure: Callable[[Scored], Tensor] = attrgetter("log_probs_BT"),
) -> Tensor:
    """Return a measure (B, T) of all samples, log-probs by default, without gradient."""
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
    """Compute values of all samples a micro-batch at a time; return (B, T) in fp32 on the host.

    The ranks that hold the model each compute a share of the samples, and all get the values of all.
    """
    # 1. Queue the forward passes of all micro-batches; the host does not wait between them.
    ranks = ranks_of(model)
    planned = passes(ranks, samples, share_prefix, max_tokens, max_samples)
    found = [(rows, values_of([samples[i] for i in rows]), counts) for rows, counts in planned.all()]
    part(model)
    # 2. Copy each (b, t) into its rows of (B, T), t ≤ T; passes that only keep step with other ranks are left out.
    out_BT = torch.zeros(len(samples), max(len(s.ids) for s in samples))
    for rows, values_bt, counts in found:
        if counts:
            out_BT[rows, : values_bt.shape[1]] = values_bt.float().cpu()
    # 3. Rows of other ranks' shares are 0 here: the sum over ranks has every row once.
    return ranks.summed(out_BT)
