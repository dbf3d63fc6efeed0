"""A few tokens on their way through a model's own modules: what its structure is read from and compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.model.attention import PackedAttention, Segment
from whet.model.modality import as_batch, has_mrope
from whet.model.routing import is_mixture

_LOOK = (9, 40)  # lengths of the two segments that are sent through the model to look at it


@dataclass(slots=True)
class Shown:
    """A few tokens on their way through the model's own modules."""

    ids_N: Tensor
    positions: Tensor  # (N,), or (3, N) where the model has M-RoPE
    segments: np.ndarray
    inputs: list[Tensor] = field(default_factory=list)  # (N, H) of each layer
    outputs: list[Tensor] = field(default_factory=list)
    experts: list[Tensor] = field(default_factory=list)  # (N, K) of each layer that has experts
    scales: list[float] = field(default_factory=list)
    windows: list[int | None] = field(default_factory=list)


class _Watching(PackedAttention):
    """Packed attention that writes down how each layer asked for it."""

    def __init__(self, shown: Shown) -> None:
        super().__init__([Segment(*row) for row in shown.segments.tolist()], shown.ids_N.device)
        self._shown = shown

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        self._shown.scales.append(scale)
        self._shown.windows.append(window)
        return super().attend(layer, query_HND, key_HND, value_HND, scale, window)


def show(model: PreTrainedModel, layers: nn.ModuleList) -> Shown:
    """Send a few tokens through the model and write down what each layer got and returned."""
    device, vocabulary = model.device, cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
    first, second = _LOOK
    ids = torch.randint(vocabulary, (first + second,), generator=torch.Generator().manual_seed(0)).to(device)
    positions = torch.cat([torch.arange(first), torch.arange(second)]).to(device)
    if has_mrope(model.config):
        positions = torch.stack([positions, positions // 3, positions % 7])  # three that differ, as images have them
    shown = Shown(ids, positions, np.array([(0, first, 0, 0), (first, second, 0, 0)]))

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        shown.inputs.append((args[0] if args else kwargs["hidden_states"])[0].clone())

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        shown.outputs.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    def routed(_module: nn.Module, _args: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        shown.experts.append(output[2].int())

    hooks = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(after) for layer in layers]
    blocks = [cast(Any, layer.mlp) for layer in layers if is_mixture(layer.mlp)]
    hooks += [block.gate.register_forward_hook(routed) for block in blocks]
    try:
        model.base_model(
            input_ids=ids[None], position_ids=as_batch(positions), use_cache=False, attention=_Watching(shown)
        )
    finally:
        for hook in hooks:
            hook.remove()
    return shown
