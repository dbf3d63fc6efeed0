"""Choose the models that run by fused kernels, and those in exact mode; others run by their own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers import PreTrainedModel

from whet import kernels
from whet.errors import UserError
from whet.model.modality import has_vision

if TYPE_CHECKING:
    from whet.model.decoder import FusedDecoder

_TOLERANCE = 0.03  # of a layer's own contribution; rounding in bf16 makes up to a third of it
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_DECODERS: WeakKeyDictionary[PreTrainedModel, FusedDecoder] = WeakKeyDictionary()
_EXACT: WeakSet[PreTrainedModel] = WeakSet()


def fuse(model: PreTrainedModel) -> bool:
    """Let a model run by fused kernels from now on; False, and nothing changed, where it cannot."""
    if not has_kernels(model):
        return False
    from whet.model.decoder import FusedDecoder  # these import triton, which not every machine has
    from whet.model.structure import read_structure

    structure = read_structure(model)
    if structure is None:
        return False
    structure.lay_out()
    decoder = FusedDecoder(model, structure)
    if not decoder.differs() < _TOLERANCE:
        return False
    structure.forget_shown()
    _DECODERS[model] = decoder
    return True


def decoder_of(model: PreTrainedModel) -> FusedDecoder | None:
    """The fused decoder of a model that has one."""
    return _DECODERS.get(model)


def unfuse(model: PreTrainedModel) -> None:
    """Let a model run by its own modules again, which are about to change."""
    _DECODERS.pop(model, None)


def has_kernels(model: PreTrainedModel) -> bool:
    """Return True if whet's attention kernels support the model's device, dtype and head size."""
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    right_size = 16 <= head_dim <= 256 and head_dim & (head_dim - 1) == 0
    return kernels.available(model.device) and model.dtype in _DTYPES and right_size


def make_exact(model: PreTrainedModel) -> None:
    """Let a model compute every token with the same bits whatever shares its batch, from now on."""
    key = "worker.rollout.exact=true"
    if not has_kernels(model):
        raise UserError(f"{key} needs a CUDA device with triton, and heads of 16, 32, 64, 128 or 256; set it to false")
    if has_vision(model.config):
        raise UserError(f"{key}: the vision encoder of this model has no exact form; set it to false")
    if getattr(model.config.get_text_config(), "final_logit_softcapping", None) is not None:
        raise UserError(f"{key}: this model soft-caps its logits, for which there is no exact form; set it to false")
    unfuse(model)
    _EXACT.add(model)


def is_exact(model: PreTrainedModel) -> bool:
    """Return True if the model runs in exact mode."""
    return model in _EXACT
