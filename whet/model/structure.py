"""Parts of a decoder, read from its modules.

Llama, Mistral, Qwen2, Qwen3, Gemma and their kin are one structure with a few switches: where norms stand, whether
queries and keys have one, biases, the activation, windows, an MLP or a mixture of experts (Qwen3-MoE, Mixtral). The
switches are read from the modules and from what a few tokens show on their way through them, not from the model's name.
A structure that is not recognised gives None, and the model then runs by its own modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.model.blocks import Norm, QKNorm
from whet.model.low_rank import LowRank, base_of, is_plain, low_rank_of
from whet.model.mixture import Experts
from whet.model.modality import has_mrope, text_model
from whet.model.routing import is_mixture, normalises
from whet.model.shown import Shown, show
from whet.model.weights import lay_adjacent

_PRE_NORM = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_SANDWICH = _PRE_NORM | {"pre_feedforward_layernorm", "post_feedforward_layernorm"}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_GATED = ("gate_proj", "up_proj", "down_proj")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class Gated(NamedTuple):
    """The projections of an MLP."""

    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: the model's own parameters, and how they are put together."""

    attention_norm: nn.Module
    attention_out_norm: nn.Module | None  # Gemma norms what a half returns before it is added
    mlp_norm: nn.Module
    mlp_out_norm: nn.Module | None
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    o: nn.Module  # with its adapter, if it has one
    q_norm: nn.Module | None
    k_norm: nn.Module | None
    gated: Gated | None  # the MLP; None where the layer has experts instead
    mixture: nn.Module | None  # a router `gate` and its `experts`
    normalised: bool  # weights of a token's experts sum to 1
    offset: float  # of the norms' weights: Gemma's are around 0
    scale: float
    window: int | None
    rope: str | None  # which of the model's rotary embeddings
    adapted: dict[str, nn.Module]  # the projections as modules that may have adapters, by the names above

    def adapters(self, *names: str) -> list[LowRank | None]:
        """The adapters of some projections; None where there is none or where it is switched off."""
        return [low_rank_of(self.adapted[name]) for name in names]

    def experts(self) -> Experts:
        """The experts' parameters, of a layer that has them."""
        block = cast(Any, self.mixture)
        parameters = (block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj)
        return Experts(*parameters, block.gate.top_k, self.normalised)

    def norm(self, module: nn.Module) -> Norm:
        """A norm as the fused blocks take it."""
        return Norm(cast(Tensor, module.weight), _eps(module), self.offset)

    @property
    def qk_norm(self) -> QKNorm | None:
        """The norms of queries and keys, where there are any."""
        if self.q_norm is None or self.k_norm is None:
            return None
        weights = cast(Tensor, self.q_norm.weight), cast(Tensor, self.k_norm.weight)
        return QKNorm(*weights, _eps(self.q_norm), self.offset)


@dataclass(frozen=True, slots=True)
class Structure:
    """A whole decoder without its output head."""

    embedding: nn.Module
    embedding_scale: float
    layers: list[Layer]
    final_norm: nn.Module
    rotary: nn.Module
    mrope: bool  # whether it wants three positions of every token
    ropes: list[str | None]
    heads: int
    kv_heads: int
    head_dim: int
    activation: str
    shown: Shown  # what the model's own modules did with the tokens that were sent through

    def lay_out(self) -> None:
        """Let projections that read the same input lie next to each other, so that one product serves them all."""
        for layer in self.layers:
            lay_adjacent(layer.q, layer.k, layer.v)
            if layer.gated is not None:
                lay_adjacent(layer.gated.gate, layer.gated.up)

    def forget_shown(self) -> None:
        """Let go of the tensors that were kept to compare with."""
        self.shown.inputs.clear()
        self.shown.outputs.clear()
        self.shown.experts.clear()


@torch.no_grad()
def read_structure(model: PreTrainedModel) -> Structure | None:
    """The structure of a decoder, or None where it is another one than these lines know."""
    base, config = cast(Any, text_model(model)), model.config.get_text_config()
    layers = getattr(base, "layers", None)
    parts = [getattr(base, name, None) for name in ("embed_tokens", "norm", "rotary_emb")]
    if not isinstance(layers, nn.ModuleList) or not all(isinstance(part, nn.Module) for part in parts):
        return None
    embedding, final_norm, rotary = cast(list[nn.Module], parts)
    if not all(_has_structure(layer) for layer in layers):
        return None
    shown = show(model, layers)
    if len(shown.inputs) != len(layers) or len(shown.scales) != len(layers):
        return None
    offset, activation = _norm_offset(final_norm), _activation(cast(nn.Module, layers[0].mlp))
    if offset is None or activation is None:
        return None
    typed = "layer_type" in inspect.signature(rotary.forward).parameters
    ropes = list(config.layer_types) if typed else [None] * len(layers)
    head_dim = getattr(layers[0].self_attn, "head_dim", None)
    if not isinstance(head_dim, int):
        return None
    read = [
        _layer(layer, offset, scale, window, rope)
        for layer, scale, window, rope in zip(layers, shown.scales, shown.windows, ropes)
    ]
    embedded = embedding(shown.ids_N).float()
    return Structure(
        embedding=embedding,
        embedding_scale=float((shown.inputs[0].float() * embedded).sum() / embedded.square().sum()),
        layers=read,
        final_norm=final_norm,
        rotary=rotary,
        mrope=has_mrope(model.config),
        ropes=sorted(set(ropes), key=str),
        heads=read[0].q.out_features // head_dim,
        kv_heads=read[0].k.out_features // head_dim,
        head_dim=head_dim,
        activation=activation,
        shown=shown,
    )


def _has_structure(layer: nn.Module) -> bool:
    if {name for name, _ in layer.named_children()} not in (_PRE_NORM, _SANDWICH):
        return False
    attention, mlp = cast(nn.Module, layer.self_attn), cast(nn.Module, layer.mlp)
    norms = {name for name, _ in attention.named_children()} - set(_PROJECTIONS)
    return (
        norms in (set(), {"q_norm", "k_norm"})
        and all(is_plain(getattr(attention, name, None)) for name in _PROJECTIONS)
        and (_has_experts(mlp) if is_mixture(mlp) else _has_gated(mlp))
        and len({base_of(getattr(attention, name)).bias is None for name in _PROJECTIONS[:3]}) == 1
    )


def _has_gated(mlp: nn.Module) -> bool:
    linears = [getattr(mlp, name, None) for name in _GATED]
    return all(is_plain(linear) for linear in linears) and all(
        base_of(cast(Any, each)).bias is None for each in linears
    )


def _has_experts(block: Any) -> bool:
    """Experts are two tensors, the first of gates and ups: (E, 2I, H) and (E, H, I)."""
    tensors = dict(block.experts.named_parameters())
    if set(tensors) != {"gate_up_proj", "down_proj"} or set(dict(block.gate.named_parameters())) != {"weight"}:
        return False
    if getattr(block, "jitter_noise", 0.0):  # Mixtral's, while it trains
        return False
    (E, H), (E2, I2, H2) = block.gate.weight.shape, tensors["gate_up_proj"].shape
    return (E2, H2) == (E, H) and tensors["down_proj"].shape == (E, H, I2 // 2) and normalises(block.gate) is not None


def _layer(layer: Any, offset: float, scale: float, window: int | None, rope: str | None) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    sandwich = hasattr(layer, "pre_feedforward_layernorm")
    adapted = {name: getattr(attention, f"{name}_proj") for name in "qkvo"}
    gated = None
    if not is_mixture(mlp):
        adapted |= {name: getattr(mlp, f"{name}_proj") for name in Gated._fields}
        gated = Gated(*(cast(nn.Linear, base_of(adapted[name])) for name in Gated._fields))
    bases = {name: cast(nn.Linear, base_of(adapted[name])) for name in "qkv"}
    return Layer(
        attention_norm=layer.input_layernorm,
        attention_out_norm=layer.post_attention_layernorm if sandwich else None,
        mlp_norm=layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm,
        mlp_out_norm=layer.post_feedforward_layernorm if sandwich else None,
        **bases,
        o=attention.o_proj,
        q_norm=getattr(attention, "q_norm", None),
        k_norm=getattr(attention, "k_norm", None),
        gated=gated,
        mixture=mlp if gated is None else None,
        normalised=gated is None and bool(normalises(mlp.gate)),
        offset=offset,
        scale=scale,
        window=window,
        rope=rope,
        adapted=adapted,
    )


def _eps(norm: nn.Module) -> float:
    return float(cast(float, getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", 0.0)))


def _norm_offset(norm: nn.Module) -> float | None:
    """Return the offset of a norm's weight: 0, or 1 for Gemma; None for another kind of norm."""
    weight = getattr(norm, "weight", None)
    if not isinstance(weight, Tensor) or getattr(norm, "bias", None) is not None:
        return None
    x = torch.randn(4, len(weight), generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    unit = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + _eps(norm))
    y = norm(x).float()
    for offset in (0.0, 1.0):
        if torch.allclose(y, unit * (weight.float() + offset), rtol=0.02, atol=0.02):
            return offset
    return None


def _activation(mlp: nn.Module) -> str | None:
    act = getattr(mlp.experts if is_mixture(mlp) else mlp, "act_fn", None)
    x = torch.linspace(-6, 6, 97)
    for name, function in _ACTIVATIONS.items():
        if callable(act) and torch.allclose(act(x), function(x), atol=1e-6):
            return name
    return None
