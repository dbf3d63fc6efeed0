"""Weights under the names they have in a Hugging Face folder, which is what other engines read."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from whet.model.whole import full


def folder_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that `save_pretrained` would write, outside autograd; a tied one once.

    Some models are held otherwise than their folders hold them (experts as one tensor): that is undone, as when saving.
    Adapters are merged into what they adapt. Of a sharded model every rank must take them, one after the other.
    """
    from whet.model.lora import merged_weights

    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    once = {name for name, _ in model.named_parameters()}
    state = {name: tensor for name, tensor in merged_weights(model) if name in once or name not in shared}
    for name, tensor in revert_weight_conversion(model, state).items():
        yield name, full(tensor.detach())
