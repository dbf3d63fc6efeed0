"""Conversion between a checkpoint's whole tensors and those of a model that may be sharded over ranks.

Files do not depend on the number of ranks, so that a run can resume with more or fewer. Tensors are sent one at a time:
only the first rank ever holds the whole model, in host memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.learn.ranks import Ranks, ranks_of
from whet.model import lora
from whet.model.gathering import local, part
from whet.model.whole import full, own_part, sendable


def full_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the model's state dict in the first rank's host memory, {} on the others; tied tensors stay tied."""
    ranks, seen, found = ranks_of(model), dict[int, Tensor](), dict[str, Tensor]()
    part(model)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            whole = full(tensor.detach())
            seen[id(tensor)] = whole.cpu() if ranks.is_first else whole.new_empty(0)
        if ranks.is_first:
            found[name] = seen[id(tensor)]
    return found


def save_sharded(model: PreTrainedModel, folder: Path) -> None:
    """Write a Hugging Face folder of a model on several ranks; every rank must call it, the first one writes."""
    weights = full_weights(model)
    if ranks_of(model).is_first:
        model.save_pretrained(folder, state_dict=weights)


def save_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapters of a model in PEFT's format; every rank must call it, the first one writes."""
    part(model)
    state = {name: full(tensor.detach()).cpu() for name, tensor in lora.adapter_state(model).items()}
    if ranks_of(model).is_first:
        lora.save_adapters(model, folder, state)


def full_optimizer_state(optimizer: torch.optim.Optimizer, ranks: Ranks) -> dict[str, Any]:
    """Return what `optimizer.state_dict()` of one process would be, on the first rank; no state on the others."""
    found = optimizer.state_dict()
    whole: dict[int, dict[str, Tensor]] = {}
    for index, state in found["state"].items():
        for name, tensor in state.items():
            value = full(tensor)
            if ranks.is_first:
                whole.setdefault(index, {})[name] = value.cpu()
    return found | {"state": whole}


def check_optimizer_state(optimizer: torch.optim.Optimizer, state: Any, path: Path) -> None:
    """Raise a `UserError` unless `state`, read from `path`, is one of an optimizer of the same parameters."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    try:
        sizes = [len(group["params"]) for group in state["param_groups"]]
        found = {
            index: [t.shape for name, t in each.items() if isinstance(t, Tensor) and t.ndim and "scale" not in name]
            for index, each in state["state"].items()
        }
        fits = sizes == [len(group["params"]) for group in optimizer.param_groups] and all(
            shape == params[index].shape for index, shapes in found.items() for shape in shapes
        )
    except (AttributeError, IndexError, KeyError, TypeError):
        fits = False
    if not fits:
        raise UserError(
            f"{path} is not the state of this model's optimizer. Was the model changed? Continue with the config of "
            "the checkpoint, or start a new run from its weights (worker.actor.model.model_path)."
        )


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any] | None, ranks: Ranks) -> None:
    """Load whole tensors, which the first rank has read, into an optimizer of sharded parameters."""
    if ranks.world is None:
        assert state is not None, "one process reads for itself"
        optimizer.load_state_dict(state)
        return
    outline = ranks.broadcast(None if state is None else _outline(state))
    assert outline is not None, "the first rank has read the file"
    params = [p for group in optimizer.param_groups for p in group["params"]]
    empty: dict[int, dict[str, Tensor]] = {}
    for index, shapes in outline["state"].items():
        for name, (shape, dtype) in shapes.items():
            p = params[index]
            sharded = isinstance(p, DTensor) and shape == p.shape
            made = torch.empty_like(p, dtype=dtype) if sharded else torch.empty(shape, dtype=dtype)
            empty.setdefault(index, {})[name] = made
    given = None if state is None else _flat(state["state"])
    send_tensors(given, _flat(empty), ranks)
    optimizer.load_state_dict(outline | {"state": empty})


def send_tensors(given: Mapping[str, Tensor] | None, into: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Fill tensors, sharded or not, from the whole ones that the first rank has under the same names."""
    for name, target in into.items():
        whole = torch.empty(target.shape, dtype=target.dtype, device=ranks.device)
        if given is not None:
            whole.copy_(given[name].detach())
        dist.broadcast(sendable(whole), group=ranks.world, group_src=0)
        if isinstance(target, DTensor):
            whole = own_part(whole, target)
        with torch.no_grad():
            local(target).copy_(whole)


def _outline(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state with (shape, dtype) in place of tensors."""
    shapes = {i: {name: (t.shape, t.dtype) for name, t in each.items()} for i, each in state["state"].items()}
    return state | {"state": shapes}


def _flat(state: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{index}/{name}": tensor for index, each in state.items() for name, tensor in each.items()}
