"""Sharding by FSDP2: every decoder layer is a unit of its own, and the rest of the model another.

Gradients are summed over ranks, not averaged: losses are divided by counts of the whole mini-batch already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from transformers import PreTrainedModel

from whet.config.schema.model import FSDPConfig
from whet.errors import UserError
from whet.learn.full_state import send_tensors
from whet.learn.layout import ParallelLayout
from whet.learn.ranks import Ranks, set_ranks
from whet.learn.tensor_parallel import replicate_rest, split_layer
from whet.learn.value_head import ValueModel
from whet.model.gathering import sharded_modules
from whet.model.modality import has_vision, text_model, vision_of
from whet.model.vision import tower_blocks
from whet.model.whole import let_gather, note_frees

M = TypeVar("M", PreTrainedModel, ValueModel)
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def precision(fsdp: FSDPConfig, device: torch.device) -> MixedPrecisionPolicy:
    """Return `mp_*` as FSDP's policy. On a CPU passes are in the dtype of the weights."""
    passes = _dtype(fsdp.mp_param_dtype) if device.type == "cuda" else None
    return MixedPrecisionPolicy(param_dtype=passes, reduce_dtype=_dtype(fsdp.mp_reduce_dtype))


def shard(
    model: PreTrainedModel | ValueModel,
    fsdp: FSDPConfig,
    layout: ParallelLayout,
    device: torch.device,
    policy: MixedPrecisionPolicy | None = None,
) -> None:
    """Shard a model over ranks, in place, and have them share its work.

    A model on the "meta" device gets uninitialised memory, a layer at a time: fill it afterwards.
    """
    mesh, tensor = layout.shards, layout.tensor
    offload = CPUOffloadPolicy(pin_memory=device.type == "cuda") if fsdp.enable_cpu_offload else OffloadPolicy()
    home = torch.device("cpu") if fsdp.enable_cpu_offload else device
    policy = policy or precision(fsdp, device)
    memory: dict[Tensor, nn.Parameter] = {}
    language = model.backbone if isinstance(model, ValueModel) else model
    layers = decoder_layers(language)
    if (vision := vision_of(language)) is not None and not vision.in_pieces:
        raise UserError(
            f"{type(language).__name__} has a vision encoder that ranks without images could not keep step with: train "
            "on one device"
        )
    # With tensor parallelism the tower's blocks are no units of their own: FSDP does not mix cut and whole ones.
    for layer in layers if tensor is not None else [*tower_blocks(language), *layers]:
        _materialise(layer, home, memory)
        if tensor is not None:
            split_layer(layer, language.config, tensor)
        frees = fsdp.enable_full_shard
        fully_shard(layer, mesh=mesh, reshard_after_forward=frees, mp_policy=policy, offload_policy=offload)
        note_frees(layer, frees)
    _materialise(model, home, memory)
    if tensor is not None:
        replicate_rest(model, tensor)
    fully_shard(language, mesh=mesh, reshard_after_forward=False, mp_policy=policy, offload_policy=offload)
    if isinstance(model, ValueModel):  # its head computes in its own dtype, whatever that of the passes
        wide = MixedPrecisionPolicy(reduce_dtype=policy.reduce_dtype)
        fully_shard(model.head, mesh=mesh, reshard_after_forward=False, mp_policy=wide, offload_policy=offload)
    # whet calls the backbone itself, which then gathers its parameters, unless it is run in pieces
    if language.base_model is not language or has_vision(language.config):
        let_gather(language)
    for module in sharded_modules(model):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no other
    asked = _dtype(fsdp.mp_buffer_dtype)
    for buffer in model.buffers():
        # FSDP leaves buffers alone. A wider one would promote everything computed with it.
        narrower = buffer.is_floating_point() and asked.itemsize < buffer.dtype.itemsize
        buffer.data = buffer.data.to(device, asked if narrower else buffer.dtype)
    set_ranks(model, layout.ranks)
    if language is not model:
        set_ranks(language, layout.ranks)


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers of the decoder."""
    depth = model.config.get_text_config().num_hidden_layers
    for module in text_model(model).modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return list(module)
    raise UserError(f"{type(model).__name__} keeps its {depth} layers where whet cannot find them: train on one device")


def load_sharded(
    load: Callable[[], M],
    empty: Callable[[], M],
    fsdp: FSDPConfig,
    layout: ParallelLayout,
    device: torch.device,
) -> M:
    """Return a sharded model whose weights the first rank reads to host memory (`load`) and sends to the others.

    `empty` builds the same model on "meta". With enable_rank0_init=false every rank reads the weights for itself.
    """
    if not fsdp.enable_rank0_init:
        model = load()
        shard(model, fsdp, layout, device)
        return model
    source = _on_first(layout.ranks, load)
    model = empty()
    shard(model, fsdp, layout, device)
    given = None if source is None else dict(source.named_parameters()) | dict(source.named_buffers())
    with torch.no_grad():
        send_tensors(given, dict(model.named_parameters()) | dict(model.named_buffers()), layout.ranks)
    return model


def _on_first(ranks: Ranks, load: Callable[[], M]) -> M | None:
    """Load on the first rank and return None on the others; a `UserError` of the first is raised on all."""
    model, said = None, ""
    if ranks.is_first:
        try:
            model = load()
        except UserError as error:
            said = str(error)
    if said := ranks.broadcast(said):
        raise UserError(said)
    return model


def _materialise(module: nn.Module, device: torch.device, memory: dict[Tensor, nn.Parameter]) -> None:
    """Allocate parameters and buffers that are on "meta"; `memory` maps those done, so that tied ones stay tied."""
    for child in module.modules():
        for name, p in list(child.named_parameters(recurse=False)):
            if p.is_meta:
                made = memory.get(p)
                if made is None:
                    made = memory[p] = nn.Parameter(torch.empty_like(p, device=device), p.requires_grad)
                setattr(child, name, made)
        for name, buffer in list(child.named_buffers(recurse=False)):
            if buffer.is_meta:
                setattr(child, name, torch.empty_like(buffer, device=device))


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, _DTYPES.get(name, name))
    return found
