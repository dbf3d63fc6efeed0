"""Checkpoints of whet, which hold whole tensors whatever the number of ranks: the model, or adapters merged or kept."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from whet.assets import resolve_model
from whet.assets.store import is_builtin
from whet.checkpoint.judging import verify
from whet.checkpoint.manifest import MANIFEST, UnusableError
from whet.errors import UserError
from whet.merge.folder import check_room, check_target, describing_files, is_weights, writing
from whet.merge.options import Options
from whet.merge.safetensors_file import Entry, check_finite, write_model
from whet.model.export import base_of, export_merged
from whet.model.modality import ADAPTER_FOLDER
from whet.model.trust import ADAPTER_CONFIG as CONFIG
from whet.model.trust import check_config, check_links, read_json

_NOT_FROM_FILES = ("auto_map", "name_or_path", "quantization_config", "transformers_weights")


def is_checkpoint(folder: Path) -> bool:
    """Return True if the folder is a global_step_N that whet wrote."""
    return (folder / MANIFEST).is_file()


def merge_checkpoint(options: Options, checkpoint: Path, say: Callable[[str], None]) -> Path:
    """Write the policy of `checkpoint` and return the folder it is in."""
    target = options.target_dir
    if target is None:
        raise UserError(f"{checkpoint} is a checkpoint of whet; say by --target_dir where its model should go")
    check_target(target, target)
    adapters, model = checkpoint / "actor" / ADAPTER_FOLDER, checkpoint / "actor" / "huggingface"
    if not adapters.is_dir() and options.keep_lora:
        raise UserError(f"--keep-lora: {checkpoint} has no adapters")
    if not adapters.is_dir() and not model.is_dir():
        raise UserError(f"{checkpoint} holds no policy: there is neither {model} nor {adapters}")
    check_links(checkpoint)
    override = _verified(checkpoint)
    if adapters.is_dir() and not options.keep_lora:
        _write_merged(options, adapters, target, override, say)
    elif options.dtype is None:
        source = adapters if adapters.is_dir() else model
        for file, name in _names(source):
            check_finite(name, _read(file, name, None))
        with writing(target) as side:
            shutil.copytree(source, side, dirs_exist_ok=True)
    elif adapters.is_dir():
        raise UserError("--dtype: adapters that are kept keep their dtype")
    else:
        _write_cast(model, target, options.dtype)
    kind = "the adapters are" if options.keep_lora else "the merged model is"
    say(f"{kind} in {target}")
    return target


def _verified(checkpoint: Path) -> dict[str, Any]:
    """Check all files, and return the fields of the model's config that the run had changed.

    Nothing else of the run's config is taken from the checkpoint: it may be a stranger's.
    """
    try:
        override = verify(checkpoint).meta["config"]["worker"]["actor"]["model"]["override_config"]
    except UnusableError as problem:
        raise UserError(f"{checkpoint} {problem.word}: {problem}. Choose another checkpoint.") from problem
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{checkpoint / MANIFEST} is not as whet writes it ({error!r}). Choose another.") from None
    if not isinstance(override, dict):
        raise UserError(f"{checkpoint / MANIFEST}: override_config is no mapping")
    check_config(checkpoint / MANIFEST, override)
    for name in override:
        if name.startswith("_") or name in _NOT_FROM_FILES:
            raise UserError(f"{checkpoint / MANIFEST}: override_config.{name} may not come from a file")
    return override


def _base(options: Options, adapters: Path, target: Path, say: Callable[[str], None]) -> str:
    """The model under the adapters: the one on the command line, or a built-in, which lies nowhere else."""
    if options.base:
        return resolve_model(options.base, say)
    named = base_of(adapters)
    if named and is_builtin(named):
        return resolve_model(named, say)
    recorded = f" ({CONFIG} says {ascii(named)[:200]})" if named else ""
    raise UserError(
        f"{options.local_dir} holds adapters. Name the model that they were trained on{recorded}; it is not taken from "
        f"a file that may be a stranger's: whet merge {shlex.quote(str(options.local_dir))} {shlex.quote(str(target))} "
        "BASE"
    )


def _write_merged(
    options: Options, adapters: Path, target: Path, override: dict[str, Any], say: Callable[[str], None]
) -> None:
    if options.dtype is not None:
        raise UserError("--dtype: a merged model has the dtype of its adapters; merge, then cast the folder")
    path = _base(options, adapters, target, say)
    with writing(target) as side:
        export_merged(adapters, side, path, options.trust_remote_code, override)
        for name, file in describing_files(adapters).items():  # a processor, which export does not know of
            if not (side / name).exists() and name != CONFIG:
                shutil.copyfile(file, side / name)


def _write_cast(model: Path, target: Path, dtype: torch.dtype) -> None:
    """The same folder with its weights in another dtype."""
    config = read_json(model / "config.json")
    entries = [_entry(file, name, dtype) for file, name in _names(model)]
    check_room(target, entries)
    with writing(target) as side:
        for path in model.iterdir():
            if path.is_file() and not is_weights(path):
                shutil.copyfile(path, side / path.name)
        config["dtype"] = str(dtype).removeprefix("torch.")
        (side / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        write_model(side, entries)


def _names(folder: Path) -> list[tuple[Path, str]]:
    """All tensors in the safetensors files of a folder."""
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as tensors:
                names = list(tensors.keys())
        except (OSError, SafetensorError) as error:
            raise UserError(f"{file} could not be read: {error}") from None
        twice = next((name for name in names if name in found), None)
        if twice is not None:
            raise UserError(f"{file} and {found[twice]} both hold {twice}")
        found |= dict.fromkeys(names, file)
    if not found:
        raise UserError(f"{folder} holds no weights")
    return [(file, name) for name, file in found.items()]


def _entry(file: Path, name: str, dtype: torch.dtype) -> Entry:
    tensor = _read(file, name, None)
    kind = dtype if tensor.is_floating_point() else tensor.dtype
    return Entry(name, tuple(tensor.shape), kind, partial(_read, file, name, kind))


def _read(file: Path, name: str, dtype: torch.dtype | None) -> Tensor:
    try:
        with safe_open(file, framework="pt") as tensors:
            return tensors.get_tensor(name).to(dtype)
    except (OSError, SafetensorError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{file}: {name} could not be read: {error}") from None
