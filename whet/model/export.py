"""Adapters merged into the weights they were trained on, as a Hugging Face folder that needs no PEFT to be read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.model.load import load_model_config, load_tokenizer
from whet.model.lora import WEIGHTS
from whet.model.modality import language_class
from whet.model.trust import ADAPTER_CONFIG, check_link, check_pickled_weights, read_json, shown

_MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# Kinds of adapters whose sum is not W + scale · B A, or that need more than their own weights.
OTHER_KINDS = (
    "use_dora",
    "alora_invocation_tokens",
    "layer_replication",
    "rank_pattern",
    "alpha_pattern",
    "fan_in_fan_out",
    "lora_bias",
    "modules_to_save",
    "trainable_token_indices",
    "megatron_config",
)


def base_of(adapters: Path) -> str | None:
    """The model that a folder of adapters says it belongs to, which is for a person to read."""
    base = read_json(adapters / ADAPTER_CONFIG).get("base_model_name_or_path")
    return base if isinstance(base, str) and base else None


def read_scale(file: Path) -> tuple[int, float, bool]:
    """Return r, lora_alpha and use_rslora of an adapter_config.json; a `UserError` where they do not tell the sum."""
    config: dict[str, Any] = read_json(file)
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    good = type(rank) is int and rank > 0 and type(alpha) in (int, float) and 0 < alpha < 1e6
    if not good:
        raise UserError(f"{file} should say r and lora_alpha of the run: r={shown(rank)}, lora_alpha={shown(alpha)}")
    if str(config.get("peft_type") or "LORA") != "LORA" or config.get("bias", "none") != "none":
        raise UserError(f"{file}: only LoRA without biases can be merged; PEFT's own merge_and_unload can do more")
    for key in OTHER_KINDS:
        if config.get(key):
            raise UserError(f"{file}: {key}={shown(config[key])} cannot be merged; PEFT's own merge_and_unload can")
    return rank, float(alpha), bool(config.get("use_rslora"))


def export_merged(
    adapters: Path,
    folder: Path,
    base: str,
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
) -> None:
    """Write the model in `base` with the adapters merged in, and the tokenizer.

    The weights are in the dtype that the adapters were trained in. Of the adapters' own config only their rank and
    scale are read: neither the base nor code that it names.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give the name of a new one")
    for name in (ADAPTER_CONFIG, WEIGHTS):
        check_link(adapters / name, adapters)
    scale = read_scale(adapters / ADAPTER_CONFIG)
    state = _read_adapters(adapters / WEIGHTS)
    (dtype,) = {tensor.dtype for tensor in state.values()}
    config = load_model_config(base, trust_remote_code, override)
    check_pickled_weights(base)
    try:  # not `load_model`: nothing is computed with it, and not every CPU can in bf16
        model = language_class(config).from_pretrained(
            base, config=config, dtype=dtype, attn_implementation="eager", trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        raise UserError(f"the weights under the adapters could not be loaded from {base}: {error}") from None
    _merge(model, state, *scale, file=adapters / WEIGHTS)
    model.save_pretrained(folder)
    load_tokenizer(str(adapters), trust_remote_code).save_pretrained(folder)


@torch.no_grad()
def _merge(model: PreTrainedModel, state: dict[str, Tensor], rank: int, alpha: float, rooted: bool, file: Path) -> None:
    """W + scale · B A in every adapted layer, rounded as PEFT rounds it: the product to their dtype, then the sum."""
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        layer, kind = _MATRIX.fullmatch(name).groups()  # type: ignore[union-attr]
        pairs.setdefault(layer, {})[kind] = tensor
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for layer, pair in pairs.items():
        if layer not in linear or pair.keys() != {"A", "B"}:
            raise UserError(
                f"{file}: {layer!r} is no linear layer of the model under the adapters, or half of it lacks"
            )
        weight, a_RI, b_OR = linear[layer].weight, pair["A"], pair["B"]
        if a_RI.shape != (rank, weight.shape[1]) or b_OR.shape != (weight.shape[0], rank):
            raise UserError(
                f"{file}: the adapter of {layer} has the shapes {tuple(a_RI.shape)} and {tuple(b_OR.shape)}, which "
                f"with r={rank} do not fit a layer of {tuple(weight.shape)}; is it of another model?"
            )
        added = (b_OR.float() @ a_RI.float()) * (alpha / (math.sqrt(rank) if rooted else rank))
        weight += added.to(b_OR.dtype).to(weight.dtype)
        if not torch.isfinite(weight).all():
            raise UserError(f"{file}: with its adapter {layer} holds values that are not finite")


def _read_adapters(file: Path) -> dict[str, Tensor]:
    """The matrices A and B of layers, under PEFT's names."""
    try:
        state = load_file(file)
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"the adapters in {file} could not be read: {error}") from None
    odd = next((name for name in state if not _MATRIX.fullmatch(name)), None)
    if odd is not None:
        raise UserError(f"{file} holds {odd!r}, which is no adapter of a linear layer")
    if len({tensor.dtype for tensor in state.values()}) != 1:
        raise UserError(f"{file} holds {'adapters of several dtypes' if state else 'no adapters'}")
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{file}: {name} holds values that are not finite; choose another checkpoint")
    return state
