"""A value model: a language model's hidden states, and a linear head that predicts the return from each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.learn.ranks import ranks_of
from whet.learn.scoring import packed_row
from whet.learn.update import save_weights
from whet.model.load import hidden_states
from whet.model.whole import full
from whet.types import Sample

_FILE = "value_head.safetensors"  # beside the backbone's weights, so that the folder holds the whole critic


class ValueModel(nn.Module):
    """A backbone and a linear head that is initialised with zeros: before any update every value is 0."""

    def __init__(self, backbone: PreTrainedModel) -> None:
        super().__init__()
        self.backbone = backbone
        # bf16 has too few digits for values that are compared with returns
        dtype = torch.promote_types(backbone.dtype, torch.float32)
        size = backbone.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1, device=backbone.device, dtype=dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def response_values(self, samples: Sequence[Sample], share_prefix: bool) -> Tensor:
        """Return values (B, T) of one packed micro-batch: the return expected before each token; 0 past the end."""
        packed = packed_row(self.backbone, samples, share_prefix)
        hidden_NH = hidden_states(self.backbone, packed.ids_N, packed.positions_N, packed.attention, packed.media)
        values_M = self.head(hidden_NH[packed.rows_M].to(self.head.weight.dtype)).squeeze(-1)
        return packed.unpack(values_M)

    def save(self, folder: Path) -> None:
        """Write backbone and head to one Hugging Face folder; every rank must call it, the first one writes."""
        save_weights(self.backbone, folder)
        head = {name: full(tensor).contiguous() for name, tensor in self.head.state_dict().items()}
        if ranks_of(self).is_first:
            save_file(head, folder / _FILE)

    def load_head(self, folder: Path) -> None:
        """Read the head that `save` wrote; a folder without one is a language model, and the head stays 0."""
        if (folder / _FILE).is_file():
            self.head.load_state_dict(load_file(folder / _FILE, device=str(self.backbone.device)))
