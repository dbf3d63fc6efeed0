"""Checkpoints of whet, which hold whole tensors whatever the number of ranks: the model, or adapters merged or kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from whet.assets import resolve_model
from whet.checkpoint.manifest import MANIFEST, DamagedError, verify
from whet.errors import UserError
from whet.merge.folder import check_room, check_target, describing_files, is_weights, writing
from whet.merge.options import Options
from whet.merge.safetensors_file import Entry, write_model
from whet.model.export import base_of, export_merged
from whet.model.lora import FOLDER


def is_checkpoint(folder: Path) -> bool:
    """Whether whet wrote a folder, which is then a global_step_N."""
    return (folder / MANIFEST).is_file()


def merge_checkpoint(options: Options, checkpoint: Path, say: Callable[[str], None]) -> Path:
    """Write the policy of `checkpoint` and return the folder it is in."""
    target = options.target_dir
    if target is None:
        raise UserError(f"{checkpoint} is a checkpoint of whet; say by --target_dir where its model should go")
    check_target(target, target)
    adapters, model = checkpoint / "actor" / FOLDER, checkpoint / "actor" / "huggingface"
    if not adapters.is_dir() and options.keep_lora:
        raise UserError(f"--keep-lora: {checkpoint} has no adapters")
    try:
        chosen = verify(checkpoint).meta["config"]["worker"]["actor"]["model"]
    except DamagedError as damage:
        raise UserError(f"{checkpoint} is damaged: {damage}. Choose another checkpoint.") from damage
    if adapters.is_dir() and not options.keep_lora:
        _write_merged(options, adapters, target, chosen, say)
    elif options.dtype is None:
        with writing(target) as side:
            shutil.copytree(adapters if adapters.is_dir() else model, side, dirs_exist_ok=True)
    elif adapters.is_dir():
        raise UserError("--dtype: adapters that are kept keep their dtype")
    else:
        _write_cast(model, target, options.dtype)
    kind = "the adapters are" if options.keep_lora else "the merged model is"
    say(f"{kind} in {target}")
    return target


def _write_merged(
    options: Options, adapters: Path, target: Path, chosen: dict[str, Any], say: Callable[[str], None]
) -> None:
    if options.dtype is not None:
        raise UserError("--dtype: a merged model has the dtype of its adapters; merge, then cast the folder")
    path = resolve_model(options.base or base_of(adapters), say)
    with writing(target) as side:
        export_merged(adapters, side, path, chosen["trust_remote_code"], chosen["override_config"])
        for name, file in describing_files(adapters).items():  # a processor, which export does not know of
            if not (side / name).exists() and name != "adapter_config.json":
                shutil.copyfile(file, side / name)


def _write_cast(model: Path, target: Path, dtype: torch.dtype) -> None:
    """The same folder with its weights in another dtype."""
    entries = []
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                part = tensors.get_slice(name)
                entries.append(Entry(name, tuple(part.get_shape()), dtype, partial(_read, file, name, dtype)))
    check_room(target, entries)
    with writing(target) as side:
        for path in model.iterdir():
            if path.is_file() and not is_weights(path):
                shutil.copyfile(path, side / path.name)
        config = json.loads((side / "config.json").read_text())
        config["dtype"] = str(dtype).removeprefix("torch.")
        (side / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        write_model(side, entries)


def _read(file: Path, name: str, dtype: torch.dtype) -> Tensor:
    with safe_open(file, framework="pt") as tensors:
        return tensors.get_tensor(name).to(dtype)
