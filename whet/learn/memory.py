"""Plan of GPU memory: the tokens that a micro-batch may hold, and whether it needs gradient checkpointing.

Everything follows from the device's total memory and the shapes of the models, never from what happens to be free: how
a batch is cut is part of a run's arithmetic, and must be the same after a resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig

from whet.learn.partition import Budget

_WORK = 5.5e12  # parameters x tokens of a micro-batch that keep a GPU busy while the host launches the next one
_LEAST_CAP, _MOST_CAP = 16384, 65536  # tokens; the products of a large model get no quicker beyond the first
_MULTIPLE = 1024
_SHARE = 0.85  # of the device; the rest is CUDA's own, and what the allocator cannot use
_MODULES = 2.5  # what a model's own modules keep for the backward pass, relative to the fused kernels
WORK_OF = {"nothing": 1.0, "mlp": 1.2, "all": 4 / 3}  # of a token, by what is recomputed for it
_FIXED = 500  # tokens whose work takes as long as what a micro-batch costs besides: gradients added up, slower products
GRADIENT_BYTES = 4  # of a trained parameter, from the first backward pass to the optimizer step
_INPUTS = 3  # layers whose inputs are on the device at once where the others' are in host memory
_LOGITS = 2 * 2**28  # elements: a chunk of logits and what is made of it


def model_bytes(parameters: int, dtype: torch.dtype, trained: bool, strategy: str = "adamw") -> int:
    """Return the bytes of weights and, if trained, of fp32 gradients and the optimizer's state.

    That is 8 bytes, or for moments in 8 bits 2 (a scale for every 256 besides) and the lower half of a bf16 weight.
    """
    if not trained:
        return parameters * dtype.itemsize
    state = 8.0 if strategy != "adamw_8bit" else 2 + 8 / 256 + (2 if dtype == torch.bfloat16 else 0)
    return round(parameters * (dtype.itemsize + GRADIENT_BYTES + state))


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes that one token of a micro-batch holds at the peak."""

    kept: int  # forward and backward, all activations kept
    mlp_recomputed: int  # gate and up, the largest activations, projected again in the backward pass
    recomputed: int  # with gradient checkpointing: each layer's input, and the activations of one layer at a time
    forward: int  # no gradient


def token_bytes(
    model: PretrainedConfig, dtype: torch.dtype, fused: bool, tower_trained: bool = True, offloaded: bool = False
) -> TokenBytes:
    """Return the bytes of a token for a model of this shape, run by fused kernels or by its own modules.

    With `offloaded` activations the inputs of all recomputed layers but a few are in host memory. For a vision-language
    model every token counts as an image token: how many are is not known in advance.
    """
    text = model.get_text_config()
    heads, hidden, layers = text.num_attention_heads, text.hidden_size, text.num_hidden_layers
    head_dim = getattr(text, "head_dim", None) or hidden // heads
    q = heads * head_dim
    kv = (getattr(text, "num_key_value_heads", None) or heads) * head_dim
    intermediate = getattr(text, "intermediate_size", None) or 4 * hidden
    top_k = getattr(text, "num_experts_per_tok", None) or 0
    if top_k and (width := getattr(text, "moe_intermediate_size", None)):
        intermediate = top_k * width
    # Two streams, queries, keys and values, queries and keys before their norms, attention's output, gate and up.
    elements = 2 * hidden + (q + 2 * kv) + (q + kv) + q + 2 * intermediate
    layer = round(elements * dtype.itemsize * (1.0 if fused else _MODULES))
    gated = 2 * intermediate * dtype.itemsize if fused else 0  # modules keep or recompute whole layers
    ends = 8 * hidden * dtype.itemsize  # embeddings, the last hidden states and those of responses, their gradients
    ends += 3 * top_k * hidden * dtype.itemsize  # of one layer: what each of a token's experts returns, its gradient
    inputs = input_bytes(model, dtype)
    if offloaded and layers > _INPUTS:
        inputs = inputs * _INPUTS // layers
    tower = _tower_bytes(model, dtype, tower_trained)
    return TokenBytes(
        kept=(layers + 2) * layer + ends + tower.kept,
        mlp_recomputed=(layers + 2) * layer - (layers - 1) * gated + ends + tower.kept,
        recomputed=inputs + 3 * layer + ends + tower.recomputed,
        forward=2 * layer + ends + tower.forward,
    )


def input_bytes(model: PretrainedConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a token in the inputs of all layers: two streams each."""
    text = model.get_text_config()
    return int(text.num_hidden_layers * 2 * text.hidden_size * dtype.itemsize)


def _tower_bytes(model: PretrainedConfig, dtype: torch.dtype, trained: bool) -> TokenBytes:
    """Return what the vision tower holds for one token of an image: several patches, by its own modules."""
    vision = getattr(model, "vision_config", None)
    depth = getattr(vision, "depth", None) or getattr(vision, "num_hidden_layers", None)
    width = getattr(vision, "embed_dim", None) or getattr(vision, "hidden_size", None)
    if depth is None or width is None:
        return TokenBytes(0, 0, 0, 0)
    inner = getattr(vision, "intermediate_size", None) or round(width * getattr(vision, "mlp_ratio", 4))
    patches = getattr(vision, "spatial_merge_size", 1) ** 2
    # Two streams, queries, keys and values, queries and keys once more, attention's output, gate and up.
    layer = round(patches * (8 * width + 2 * inner) * dtype.itemsize * _MODULES)
    forward = 2 * layer
    if not trained:
        return TokenBytes(forward, forward, forward, forward)
    kept = (depth + 2) * layer
    return TokenBytes(kept, kept, depth * patches * width * dtype.itemsize + 3 * layer, forward)


def head_bytes(model: PretrainedConfig, dtype: torch.dtype, trained: bool = True) -> int:
    """Return the bytes needed to turn hidden states into log-probs, whatever the number of tokens."""
    text = model.get_text_config()
    gradient = 2 * GRADIENT_BYTES * text.vocab_size * text.hidden_size if trained else 0  # of the weight, twice
    return _LOGITS * dtype.itemsize + gradient


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU's memory, and what lies there beside micro-batches."""

    total: int
    held_update: int  # by models, gradients, optimizers and caches while a model is trained
    held_forward: int  # in passes without gradient

    @property
    def room_update(self) -> int:
        """Bytes for the micro-batches of an update."""
        return max(0, round(self.total * _SHARE) - self.held_update)

    @property
    def room_forward(self) -> int:
        """Bytes for micro-batches without gradient."""
        return max(0, round(self.total * _SHARE) - self.held_forward)


@dataclass(frozen=True, slots=True)
class Demand:
    """Everything about a model's passes that a plan depends on."""

    parameters: int
    token: TokenBytes
    longest: int  # tokens of the longest sample
    needed: int  # tokens that one micro-batch should hold
    recompute: bool | None  # None: what costs least
    shared: int = 1  # devices that split a row between them, which hold that many times as much


def plan(device: Device, demand: Demand) -> Budget:
    """Return the tokens of micro-batches on a device, and what is recomputed in an update.

    Micro-batches hold what fits, in multiples of 1,024 tokens, but at least the longest sample.
    """
    mode, update = _cheapest(device, demand)
    experience = demand.shared * _whole(device.room_forward // demand.token.forward, demand)
    longest = demand.longest
    return Budget(max(longest, update), max(longest, experience), recompute=mode == "all", recompute_mlp=mode == "mlp")


def update_work(device: Device, demand: Demand) -> float:
    """Return the planned work of a token in an update, 1 where nothing is recomputed and micro-batches are large.

    Infinite where what one micro-batch should hold does not fit.
    """
    mode, tokens = _cheapest(device, demand)
    fits = demand.shared * (device.room_update // _held_by(demand.token)[mode]) >= demand.needed
    return _work(mode, max(tokens, demand.longest), demand.parameters) if fits else math.inf


def _cheapest(device: Device, demand: Demand) -> tuple[str, int]:
    """Return what is recomputed, of nothing, gate and up, and everything, and the tokens of a micro-batch.

    Chosen is the least work for a token among those that leave room for what is needed. Large micro-batches cost less;
    recomputing gate and up is about a fifth of a pass, everything a third.
    """
    fitting = {mode: device.room_update // size for mode, size in _held_by(demand.token).items()}
    tokens = {mode: demand.shared * _whole(size, demand) for mode, size in fitting.items()}
    if demand.recompute is None:
        enough = [mode for mode, size in fitting.items() if demand.shared * size >= demand.needed]
        mode = min(enough, key=lambda each: _work(each, tokens[each], demand.parameters), default="all")
    else:
        mode = "all" if demand.recompute else "nothing"
    return mode, tokens[mode]


def _held_by(token: TokenBytes) -> dict[str, int]:
    return {"nothing": token.kept, "mlp": token.mlp_recomputed, "all": token.recomputed}


def _whole(size: int, demand: Demand) -> int:
    """Return the tokens of a micro-batch where `size` fit."""
    enough = min(_MOST_CAP, max(_LEAST_CAP, int(_WORK / demand.parameters)))
    return min(enough, size) // _MULTIPLE * _MULTIPLE


def _work(mode: str, tokens: int, parameters: int) -> float:
    """Return the work of a token in a micro-batch of so many, of the device or of the host that launches it."""
    tokens = max(1, tokens)
    return max(WORK_OF[mode] + _FIXED / tokens, WORK_OF[mode] * _WORK / parameters / tokens)
