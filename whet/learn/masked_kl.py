"""How far the policy's distributions move when the images of its prompts are masked, over the whole vocabulary.

Each micro-batch goes through the model twice, with its prompts and with the masked ones; the two distributions of each
token are compared a chunk of rows at a time, so that logits for all tokens never exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.full_kl import full_kl
from whet.learn.packing import pack
from whet.learn.scoring import gather, response_hidden_states
from whet.model.load import head_of
from whet.model.modality import vision_of
from whet.types import Sample


@torch.no_grad()
def masked_kl_all(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    masked: Sequence[Sample],
    temperature: float,
    config: ActorConfig,
    max_tokens: int | None,
) -> Tensor:
    """KL(π(·|prompt) ‖ π(·|masked prompt)) (B, T) of all samples, 0 past the end of a response.

    `masked` are the same responses to prompts of the same tokens and other images.
    """
    twins = {id(twin): sample for sample, twin in zip(samples, masked)}
    share = config.share_prefix

    def kl_of(micro: list[Sample]) -> Tensor:
        rows = [pack(each, share, model.device, vision_of(model)) for each in ([twins[id(t)] for t in micro], micro)]
        plain_MH, masked_MH = (response_hidden_states(model, packed) for packed in rows)
        head = head_of(model)
        return rows[0].unpack(full_kl(plain_MH, head, masked_MH, head, temperature or 1.0))

    # Cut by the masked prompts, of which there may be one for each sample: both rows then fit.
    return gather(model, masked, share, max_tokens, config.micro_batch_size_per_device_for_experience, kl_of)
