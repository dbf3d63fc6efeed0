"""Check that whet computes a model as its authors do; others are refused before any work.

A model that mixes tokens outside the attention hook (state-space and convolution layers, attention of its own) would
let packed responses see each other, without an error and with wrong gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from whet.errors import UserError
from whet.model.attention import PackedAttention, Segment

ACTOR = "worker.actor.model"  # the section of the config that names the model, for what is said about it
# Scalings between the last hidden state and the logits that whet's own head computation does not apply.
_HEADS = ("logit_scale", "logits_scaling", "lm_head_multiplier")


def check_config(config: PretrainedConfig, path: str, section: str = ACTOR) -> None:
    """Refuse what the model's own config tells."""
    text = config.get_text_config()
    for name in _HEADS:
        if getattr(text, name, None) not in (None, 1, 1.0):
            raise UserError(f"{section}.model_path: {path} scales its logits ({name}), which whet does not support yet")
    if getattr(text, "attn_logit_softcapping", None) is not None:
        raise UserError(f"{section}.model_path: {path} soft-caps its attention scores, which whet does not support yet")


class _Witness(PackedAttention):
    """Packed attention that remembers which layers asked for it."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        super().__init__([Segment(0, tokens)], device)
        self.layers: set[int] = set()

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        self.layers.add(layer)
        return super().attend(layer, query_HND, key_HND, value_HND, scale, window)


@torch.no_grad()
def check_layers(model: PreTrainedModel, path: str, section: str = ACTOR) -> None:
    """Run two tokens through the model: every layer must go through the attention hook."""
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    witness = _Witness(2, model.device)
    positions = torch.arange(2, device=model.device).unsqueeze(0)
    model.base_model(input_ids=ids, position_ids=positions, use_cache=False, attention=witness)
    layers = model.config.get_text_config().num_hidden_layers
    if len(witness.layers) < layers:
        raise UserError(
            f"{section}.model_path: {layers - len(witness.layers)} of the {layers} layers of {path} "
            f"({model.config.model_type}) do not use attention that whet can replace; choose another model"
        )
