"""Low-rank adapters (LoRA, Hu et al., 2021) in a model's own linear layers, by PEFT.

PEFT puts them into the model in place and no wrapper goes around it: it stays a `PreTrainedModel`, whose `base_model`
and output head are what they were, so that whatever scores and samples with it does so with its adapters. Files are in
PEFT's own format: `PeftModel.from_pretrained` reads them. Fused kernels read the adapters where they lie.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from whet.config.schema.model import ALL_LINEAR, LoraConfig, listed_modules
from whet.errors import UserError
from whet.model.fused import fuse, unfuse
from whet.model.modality import has_adapters, language_class

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear

KEY = "worker.actor.model.lora"
WEIGHTS = "adapter_model.safetensors"
_ADAPTER = "default"  # PEFT's name for a model's only adapter
_WRAPPED = "base_model.model."  # before every name in PEFT's files: where a model stands inside PEFT's wrapper
_SHOWN = 8  # module names in an error


def require_peft(what: str) -> None:
    """A `UserError` where PEFT is not installed, which `what` needs."""
    if find_spec("peft") is None:
        raise UserError(f'{what} needs PEFT: pip install "whet[lora]"')


def check_adapters(config: PretrainedConfig, lora: LoraConfig, trust_remote_code: bool = False) -> int:
    """Parameters that the adapters of such a model have; no weight is read for it. A `UserError` where none fit."""
    with torch.device("meta"):
        model = language_class(config).from_config(copy.deepcopy(config), trust_remote_code=trust_remote_code)
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in _targets(model, lora).values())


def add_adapters(model: PreTrainedModel, lora: LoraConfig, base: str, seed: int) -> None:
    """Give a model adapters that change nothing yet, and train nothing but them; `base` is where its weights are from.

    They have the dtype of the layers they are in. Their first values are a function of the seed.
    """
    import peft

    targets = _targets(model, lora)
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=_condensed(model, targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    unfuse(model)
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):  # PEFT draws them on the CPU wherever the model is
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, model, _ADAPTER)
    model.eval()
    assert dict(_layers(model)).keys() == targets.keys()
    fuse(model)


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model is what it was before it had adapters; a model without any is left alone."""
    layers = [layer for _, layer in _layers(model)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def adapter_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapters alone, under the names of PEFT's files, which engines that take adapters know; not copies."""
    from peft import get_peft_model_state_dict

    found = get_peft_model_state_dict(model, adapter_name=_ADAPTER, save_embedding_layers=False)
    return {_WRAPPED + name: tensor for name, tensor in found.items()}


@torch.no_grad()
def merged_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The weights of a plain model that computes the same, one after the other, under the plain model's names."""
    layers = dict(_layers(model))
    adapters = {
        f"{name}.{own}"
        for name, layer in layers.items()
        for own in layer.state_dict()
        if not own.startswith("base_layer.")
    }
    for name, tensor in model.state_dict().items():
        if name in adapters:
            continue
        owner, inner, own = name.rpartition(".base_layer.")
        if not inner or owner not in layers:
            yield name, tensor
        elif own == "weight":
            yield f"{owner}.weight", tensor + layers[owner].get_delta_weight(_ADAPTER).to(tensor.dtype)
        else:
            yield f"{owner}.{own}", tensor


def save_adapters(model: PreTrainedModel, folder: Path, state: dict[str, Tensor] | None = None) -> None:
    """Write the adapters as PEFT would; `state` is their state where the model has only shards of it."""
    config = copy.copy(_peft_config(model))
    config.inference_mode = True  # as PEFT writes it: who loads the files does not train them unless they say so
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(folder))
    found = adapter_state(model) if state is None else state
    save_file(
        {name: tensor.contiguous() for name, tensor in found.items()}, folder / WEIGHTS, metadata={"format": "pt"}
    )


def load_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Read back what `save_adapters` wrote of a model with the same adapters."""
    from peft import set_peft_model_state_dict

    try:
        found = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"the adapters in {folder} could not be read: {error}") from None
    expected = adapter_state(model)
    if {name: t.shape for name, t in found.items()} != {name: t.shape for name, t in expected.items()}:
        raise UserError(
            f"{KEY}: the adapters in {folder} are of other layers or of another rank; set {KEY}.* as they were made"
        )
    set_peft_model_state_dict(model, {name.removeprefix(_WRAPPED): t for name, t in found.items()}, _ADAPTER)


def _peft_config(model: PreTrainedModel) -> Any:
    return model.peft_config[_ADAPTER]


def _layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    if not has_adapters(model):
        return
    from peft.tuners.lora import Linear as LoraLinear

    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield name, module


def _targets(model: PreTrainedModel, lora: LoraConfig) -> dict[str, nn.Linear]:
    """The linear layers that get adapters, by name; all problems of the keys come out here."""
    head = model.get_output_embeddings()
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    leaves = ", ".join(
        sorted({name.rpartition(".")[2] for name, module in linear.items() if module is not head})[:_SHOWN]
    )
    wanted, excluded = f"{KEY}.target_modules={lora.target_modules}", lora.exclude_modules
    for name in listed_modules(lora.target_modules) or []:
        if not any(_is_named(module, name) for module in linear):
            raise UserError(f"{wanted}: the model has no linear layer called {name}; it has {leaves}")
    matched = {name: module for name, module in linear.items() if _matches(name, lora.target_modules)}
    if lora.target_modules == ALL_LINEAR:
        matched = {name: module for name, module in matched.items() if module is not head}
    if not matched:
        raise UserError(
            f"{wanted} matches no linear layer of the model; it has {leaves} (a regular expression has to match a "
            f"whole name, such as {next(iter(linear), '')})"
        )
    targets = {name: m for name, m in matched.items() if excluded is None or not _matches(name, excluded)}
    if not targets:
        raise UserError(f"{KEY}.exclude_modules={excluded} leaves none of the layers of {wanted}")
    if any(module is head for module in targets.values()):
        raise UserError(f"{wanted} takes in the output head, which can have no adapter here; it may name {leaves}")
    name, smallest = min(targets.items(), key=lambda item: min(item[1].in_features, item[1].out_features))
    most = min(smallest.in_features, smallest.out_features)
    if lora.rank > most:
        raise UserError(
            f"{KEY}.rank={lora.rank} is more than {name} has ({smallest.in_features} to {smallest.out_features}): "
            f"set it to {most} or less, or leave the layer out by {KEY}.exclude_modules"
        )
    return targets


def _matches(module: str, wanted: str) -> bool:
    if wanted == ALL_LINEAR:
        return True
    names = listed_modules(wanted)
    if names is None:
        return re.fullmatch(wanted, module) is not None
    return any(_is_named(module, name) for name in names)


def _is_named(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _condensed(model: PreTrainedModel, targets: dict[str, nn.Linear]) -> list[str]:
    """Last parts of names where they mean the targets alone, whole names elsewhere."""
    others = {name.rpartition(".")[2] for name, _ in model.named_modules() if name not in targets}
    return sorted({name if (leaf := name.rpartition(".")[2]) in others else leaf for name in targets})
