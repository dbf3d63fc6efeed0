"""Experts that tokens of a pass are sent to: written down by the sampler, replayed by the learner.

A router's choice is discrete: where two experts are almost as likely, a difference in the last bit of a hidden state
sends the token elsewhere, and what comes out has little to do with what the sampler computed. A pass that is given a
`Routing` asks it which experts to take: the fused decoder by itself, a model's own modules in hooks of its layers and
routers. Gradients flow through the weights of the experts that are taken, as ever.

Shapes: N tokens of a pass, L layers that have experts, K experts of a token.
"""

from __future__ import annotations

from typing import Any, Protocol, cast
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.model.modality import has_vision, text_model
from whet.model.pass_modes import REPLAYING

_HOOKED: WeakSet[nn.Module] = WeakSet()


class Routing(Protocol):
    """The experts of one pass. `layer` counts the layers that have experts, from 0."""

    def known(self, layer: int) -> Tensor | None:
        """Experts (N, K) to take; None, and rows of -1, leave it to the router."""
        ...

    def note(self, layer: int, experts_NK: Tensor) -> None:
        """Experts that were taken."""
        ...


class Replay:
    """Routing that is known from an earlier pass."""

    def __init__(self, experts_NLK: Tensor) -> None:
        """Rows of -1 are left to the router."""
        self._experts_LNK = experts_NLK.to(torch.int32).transpose(0, 1).contiguous()

    def known(self, layer: int) -> Tensor | None:
        """Experts (N, K) of a layer."""
        return self._experts_LNK[layer]

    def note(self, layer: int, experts_NK: Tensor) -> None:
        """Nothing new."""


class Record:
    """Routing by the routers, written down; where `known` is given, that is taken instead."""

    def __init__(self, out_LNK: Tensor, known_NLK: Tensor | None = None) -> None:
        """`out_LNK` is written to, in any integer dtype that has room for the experts' numbers."""
        self._out_LNK = out_LNK
        self._known = None if known_NLK is None else Replay(known_NLK)

    def known(self, layer: int) -> Tensor | None:
        """Experts that must be taken, if any."""
        return None if self._known is None else self._known.known(layer)

    def note(self, layer: int, experts_NK: Tensor) -> None:
        """Write down a layer's experts."""
        self._out_LNK[layer].copy_(experts_NK)


class RoutingShape:
    """Number of layers with experts, and of experts that a token has in each."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Raise a `UserError` for a model without experts, or with routers that cannot be replayed."""
        blocks = mixtures(model)
        routers = [block.gate for block in blocks]
        config = model.config.get_text_config()
        if not blocks or not all(_is_known(router) for router in routers):
            kind = config.model_type
            what = "has no experts" if not blocks else "routes in a way that cannot be replayed"
            raise UserError(f"worker.rollout.replay_routing: a model of type {kind} {what}; set it to false")
        if has_vision(model.config):
            raise UserError("worker.rollout.replay_routing: not with a model that reads images; set it to false")
        self.layers, self.top_k = len(blocks), int(routers[0].top_k)
        self.experts = int(routers[0].weight.shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """The narrowest dtype of an expert's number: what a token's record takes is K·L of them."""
        return torch.uint8 if self.experts < 255 else torch.int16

    def buffer(self, tokens: int, device: torch.device) -> Tensor:
        """A buffer (L, tokens, K) that a pass is recorded to."""
        return torch.zeros(self.layers, tokens, self.top_k, dtype=self.dtype, device=device)


def replay_routing(model: nn.Module) -> None:
    """Let the learner's passes of this model replay what its samples recorded."""
    REPLAYING.add(model)


def joined_routing(parts: list[np.ndarray], start: int, earlier: np.ndarray | None, tokens: int) -> np.ndarray:
    """Routing of a sample's first `tokens` tokens: `parts` follow each other from token `start` on.

    For tokens of a sample that was continued the `earlier` routing holds: they were sampled with it. What nobody
    recorded is unknown.
    """
    read = np.concatenate(parts)[: max(0, tokens - start)]
    routing = np.full((tokens, *read.shape[1:]), np.iinfo(read.dtype).max, dtype=read.dtype)
    routing[start : start + len(read)] = read
    if earlier is not None:
        routing[: len(earlier)] = earlier[:tokens]
    return routing


def replay_of(routing_NLK: np.ndarray, device: torch.device | str) -> Replay:
    """Replay the recorded routing of a row; unknown experts are left to the router."""
    known = routing_NLK.astype(np.int32)
    known[routing_NLK == np.iinfo(routing_NLK.dtype).max] = -1
    tensor = torch.from_numpy(known)
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return Replay(tensor.to(device, non_blocking=True))


def mixtures(model: PreTrainedModel) -> list[Any]:
    """Blocks of experts with their routers, in the order of the layers."""
    layers = getattr(text_model(model), "layers", None) or []
    return [layer.mlp for layer in layers if is_mixture(getattr(layer, "mlp", None))]


def is_mixture(module: Any) -> bool:
    """Return True for a block of a router `gate` and `experts`, and nothing else that a token passes."""
    return isinstance(module, nn.Module) and {name for name, _ in module.named_children()} == {"gate", "experts"}


def weights_of(logits_NE: Tensor, experts_NK: Tensor, normalised: bool) -> Tensor:
    """Weights (N, K) of given experts, differentiable: softmax over all, in fp32, and divided by their sum if asked."""
    probabilities_NK = logits_NE.softmax(-1, dtype=torch.float32).gather(1, experts_NK.long())
    if normalised:
        probabilities_NK = probabilities_NK / probabilities_NK.sum(-1, keepdim=True)
    return probabilities_NK


def normalises(router: Any) -> bool | None:
    """Return whether a router divides its weights by their sum; None if it is another kind of router."""
    weight = getattr(router, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not isinstance(getattr(router, "top_k", None), int):
        return None
    x = torch.randn(8, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    with torch.no_grad():
        found = router(x)
        logits = nn.functional.linear(x, weight)
        if not isinstance(found, tuple) or len(found) != 3 or found[2].shape != (8, router.top_k):
            return None
        for normalised in (True, False):
            expected = weights_of(logits, found[2], normalised)
            same = torch.equal(found[2].sort().values, logits.topk(router.top_k).indices.sort().values)
            if same and torch.allclose(found[1].float(), expected, rtol=0.02, atol=1e-3):
                return normalised
    return None


def _is_known(router: Any) -> bool:
    return normalises(router) is not None


def hook_routers(model: PreTrainedModel) -> None:
    """Let a model's own modules ask the `routing` that their forward pass is given, once and for all.

    The layer's hook sees the pass's arguments, also when gradient checkpointing runs a layer again; the router's then
    replaces what it chose.
    """
    if model in _HOOKED:
        return
    _HOOKED.add(model)
    layers = [layer for layer in cast(Any, text_model(model)).layers if is_mixture(layer.mlp)]
    for index, layer in enumerate(layers):
        _hook(layer, layer.mlp.gate, index)


def _hook(layer: nn.Module, router: Any, index: int) -> None:
    current: list[Routing | None] = [None]
    normalised = normalises(router) or False

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        current[0] = kwargs.get("routing")

    def after(_module: nn.Module, _args: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> Any:
        routing = current[0]
        if routing is None:
            return None
        logits_NE, weights_NK, experts_NK = output
        known_NK = routing.known(index)
        if known_NK is not None:
            experts_NK = torch.where(known_NK >= 0, known_NK.to(experts_NK.dtype), experts_NK)
            weights_NK = weights_of(logits_NE, experts_NK, normalised).to(weights_NK.dtype)
        routing.note(index, experts_NK)
        return logits_NE, weights_NK, experts_NK

    def forget(*_: object) -> None:
        current[0] = None

    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_hook(forget, always_call=True)
    router.register_forward_hook(after)
