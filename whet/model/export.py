"""Adapters merged into the weights they were trained on, as a Hugging Face folder that needs no PEFT to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.model.load import load_model_config, load_tokenizer
from whet.model.lora import WEIGHTS, require_peft
from whet.model.modality import language_class


def base_of(adapters: Path) -> str:
    """The model that a folder of adapters says it belongs to."""
    try:
        return str(json.loads((adapters / "adapter_config.json").read_text())["base_model_name_or_path"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{adapters} holds no adapters that could be read: {error!r}") from None


def export_merged(
    adapters: Path,
    folder: Path,
    base: str | None = None,
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
) -> None:
    """Write the model in `base` (by default the one the adapters name) with the adapters merged in, and the tokenizer.

    The weights are in the dtype that the adapters were trained in.
    """
    require_peft("merging adapters")
    from peft import PeftModel

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give the name of a new one")
    named, dtype = base or base_of(adapters), _dtype_of(adapters)
    config = load_model_config(named, trust_remote_code, override)
    try:  # not `load_model`: nothing is computed with it, and not every CPU can in bf16
        model = language_class(config).from_pretrained(
            named, config=config, dtype=dtype, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise UserError(f"the weights under the adapters could not be loaded from {named}: {error}") from None
    wrapped: Any = PeftModel.from_pretrained(cast(torch.nn.Module, model), str(adapters), autocast_adapter_dtype=False)
    merged: PreTrainedModel = wrapped.merge_and_unload(safe_merge=True)
    merged.save_pretrained(folder)
    load_tokenizer(str(adapters)).save_pretrained(folder)


def _dtype_of(adapters: Path) -> torch.dtype:
    (dtype,) = {tensor.dtype for tensor in load_file(adapters / WEIGHTS).values()}
    return dtype
