"""`Shape`: the sizes of a model that its memory and its time depend on, read from its config, without weights.

Counts are those of transformers' classes: a dense or mixture-of-experts decoder of the Llama family with its switches
(biases, norms of queries and keys, tied embeddings), and the vision towers of Qwen2.5-VL and Qwen3-VL. Other kinds of
model are counted by building them on the "meta" device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Switches by the `model_type` of the text part: bias of queries, keys and values; norms of queries and keys.
_QKV_BIAS = {"qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl"}
_QK_NORM = {"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"}
_PLAIN = {"llama", "mistral"}
_EXPERTS = {"qwen3_moe", "qwen3_vl_moe_text"}
_GROUPED = {"qwen3_moe", "mixtral"}  # mixtures that `whet/model/structure.py` recognises
_TOWERS = {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"}
_COUNTED = (_QKV_BIAS - {"qwen2_moe", "qwen2_vl_text", "qwen2_vl"}) | _QK_NORM | _PLAIN


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder. `layer_weights` and the like count parameters, not bytes."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int  # width of the MLP that a token passes: experts per token times theirs in a mixture
    vocab: int
    tied: bool
    parameters: int  # all of them
    tower: int = 0  # of which the vision tower
    experts: int = 0  # in a layer; 0 for a dense model
    experts_per_token: int = 0
    grouped: bool = False  # fused kernels compute its experts, by grouped products

    @property
    def fused(self) -> bool:
        """True if fused kernels compute its layers on a device that has them."""
        known = not self.experts or self.grouped
        return known and self.head_dim & (self.head_dim - 1) == 0 and 16 <= self.head_dim <= 256

    @property
    def expert_weights(self) -> int:
        """Weights of the experts that a token passes, in all layers."""
        return self.layers * 3 * self.hidden * self.intermediate if self.experts else 0

    @property
    def head_weights(self) -> int:
        """Weights of the output head."""
        return self.vocab * self.hidden

    @property
    def layer_weights(self) -> int:
        """Weights that every token is multiplied with, the output head aside."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        router = self.hidden * self.experts
        return self.layers * (attention + 3 * self.hidden * self.intermediate + router)

    @property
    def largest_layer(self) -> int:
        """Parameters of one decoder layer, all experts included."""
        embeddings = self.head_weights * (1 if self.tied else 2)
        return (self.parameters - self.tower - embeddings) // self.layers

    def read_by(self, tokens: int) -> int:
        """Return the weights that a decode step of so many tokens reads: all layers, in a mixture the experts chosen.

        Experts are taken to be chosen independently and evenly.
        """
        resident = self.parameters - self.tower - (0 if self.tied else self.head_weights)
        if not self.experts:
            return resident
        each = 3 * self.hidden * (self.intermediate // self.experts_per_token)
        unused = (1 - self.experts_per_token / self.experts) ** tokens
        return round(resident - self.layers * self.experts * each * unused)

    def cache_bytes(self, width: int) -> int:
        """Return the bytes of keys and values of one token, at `width` bytes a number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * width

    def forward_flops(self, tokens: float, predicted: float, pairs: float) -> float:
        """Return the operations of a forward pass: `predicted` tokens have logits, `pairs` of tokens see each other."""
        products = 2 * (self.layer_weights * tokens + self.head_weights * predicted)
        return products + self.attention_flops(pairs)

    def attention_flops(self, pairs: float) -> float:
        """Return the operations of scores and weighted sums over pairs of tokens."""
        return 4 * self.layers * self.heads * self.head_dim * pairs


def shape_of(config: PretrainedConfig) -> Shape:
    """Read the shape of a model from its config."""
    text = config.get_text_config()
    heads, hidden = text.num_attention_heads, text.hidden_size
    experts = _experts(text)
    per_token = getattr(text, "num_experts_per_tok", 0) if experts else 0
    sparse = getattr(text, "moe_intermediate_size", None) if experts else None
    dense = getattr(text, "intermediate_size", None) or 4 * hidden
    counted = _count(config)
    return Shape(
        hidden=hidden,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or hidden // heads,
        intermediate=per_token * (sparse or dense) if experts else dense,
        vocab=text.vocab_size,
        tied=_tied(config),
        parameters=_built(config) if counted is None else counted,
        tower=_tower(config),
        experts=experts,
        experts_per_token=per_token,
        grouped=bool(experts) and text.model_type in _GROUPED,
    )


def _experts(text: PretrainedConfig) -> int:
    return getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None) or 0


def _tied(config: PretrainedConfig) -> bool:
    return bool(getattr(config, "tie_word_embeddings", getattr(config.get_text_config(), "tie_word_embeddings", False)))


def _count(config: PretrainedConfig) -> int | None:
    """Return the number of parameters of a known family, or None."""
    text = config.get_text_config()
    kind, whole = text.model_type, config.model_type
    sees = getattr(config, "vision_config", None) is not None
    if kind not in _COUNTED or (sees and whole not in _TOWERS) or (_experts(text) and kind not in _EXPERTS):
        return None
    if getattr(text, "mlp_only_layers", None) or getattr(text, "decoder_sparse_step", 1) != 1:
        return None
    embeddings = text.vocab_size * text.hidden_size * (1 if _tied(config) else 2)
    return embeddings + text.num_hidden_layers * _layer(text) + text.hidden_size + _tower(config)


def _layer(text: PretrainedConfig) -> int:
    hidden, heads = text.hidden_size, text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or hidden // heads
    q = heads * head_dim
    kv = (getattr(text, "num_key_value_heads", None) or heads) * head_dim
    attention = 2 * hidden * q + 2 * hidden * kv
    if text.model_type in _QKV_BIAS or getattr(text, "attention_bias", False):
        attention += q + 2 * kv
    if text.model_type not in _QKV_BIAS and getattr(text, "attention_bias", False):
        attention += hidden  # of the output projection
    if text.model_type in _QK_NORM:
        attention += 2 * head_dim
    if experts := _experts(text):
        mlp = experts * 3 * hidden * text.moe_intermediate_size + hidden * experts
    else:
        mlp = 3 * hidden * text.intermediate_size
        if getattr(text, "mlp_bias", False):
            mlp += 2 * text.intermediate_size + hidden
    return attention + mlp + 2 * hidden


def _tower(config: PretrainedConfig) -> int:
    """Return the parameters of the vision tower of a Qwen-VL model, 0 for a model without."""
    vision = getattr(config, "vision_config", None)
    if vision is None or config.model_type not in _TOWERS:
        return 0
    merged = vision.hidden_size * vision.spatial_merge_size**2
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    width, inner, out = vision.hidden_size, vision.intermediate_size, vision.out_hidden_size
    attention = width * 3 * width + 3 * width + width * width + width  # fused projections, with biases
    merger = merged * merged + merged + merged * out + out
    if config.model_type == "qwen2_5_vl":  # gated MLP, RMS norms, no bias in the patch embedding
        block = attention + 3 * width * inner + 2 * inner + width + 2 * width
        return patch * width + vision.depth * block + merger + width
    # Qwen3-VL: plain MLP, layer norms with biases, learned positions, and a merger for each deepstack level.
    block = attention + 2 * width * inner + inner + width + 4 * width
    levels = len(vision.deepstack_visual_indexes)
    start = patch * width + width + vision.num_position_embeddings * width
    return start + vision.depth * block + (merger + 2 * width) + levels * (merger + 2 * merged)


def _built(config: PretrainedConfig) -> int:
    """Count the parameters of a model that is built on the "meta" device: exact for every class, but slower."""
    import torch

    from whet.errors import UserError
    from whet.model.modality import language_class

    try:
        with torch.device("meta"):
            model = language_class(config).from_config(config)
    except (ValueError, TypeError, AttributeError, KeyError, RuntimeError, NotImplementedError, ImportError) as error:
        kind = config.model_type
        raise UserError(
            f"a model of type {kind} cannot be built from its config to count its weights: {error}"
        ) from None
    model.tie_weights()
    return model.num_parameters()
