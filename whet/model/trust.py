"""Model folders from strangers: no file in one may name code, a model or a file elsewhere.

transformers and PEFT follow names that they find in a folder: shards in an index, the base of adapters, files of a
tokenizer, kernels of the hub. Trust comes from the user's own command line and config alone, so that such names are
refused (or ignored, where honest folders have them as leftovers) before those libraries see the folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import cached_file

from whet.errors import UserError

ADAPTER_CONFIG = "adapter_config.json"
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TEMPLATES = "additional_chat_templates"  # a folder that tokenizers read besides their own files
_MAX_JSON = 1 << 28  # bytes; the indices of the largest models have a few megabytes
_MAX_FILES = 100_000
_DEEPEST = 50  # levels of JSON
# Numbers of modules that are built one by one, whatever the weights are.
_LAYERS = re.compile(r"(num|n)_(\w+_)?(layers?|blocks?)|(hidden|encoder|decoder)_layers|layers|depth")
_EXPERTS = re.compile(r"(num|n)_\w*experts")
_SIZES = re.compile(r"vocab_size|\w*hidden_size|\w*intermediate_size|head_dim")
_MOST_SIZE = 2**24  # of a width or a vocabulary: a machine that promises more memory than it has would not refuse it
_FEW_LAYERS = 200  # quickly built, and no more than configs say of parts that their model does not have
_MOST_MODULES = 10_000
_MOST_LISTED = 1_000_000
_IMPLEMENTATION = re.compile(r"_?(attn|experts)_implementation(_internal)?")
_FILE_KEY = re.compile(r"\w*(_file|_files|_path|_dir|filename|folder)")


def read_json(file: Path, most: int = _MAX_JSON) -> dict[str, Any]:
    """Return the mapping that a JSON file holds; a `UserError` for anything else."""
    try:
        if file.exists() and not file.is_file():
            raise ValueError("it is no file")
        if file.stat().st_size > most:
            raise ValueError(f"it has more than {most} bytes")
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} could not be read: {str(error) or type(error).__name__}") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} could not be read: it holds no mapping")
    if any(depth > _DEEPEST for _, _, depth in _items(found)):
        raise UserError(f"{file} could not be read: it is nested more than {_DEEPEST} deep")
    return found


def is_inside(path: Path, folder: Path) -> bool:
    """True if a path, links followed, lies in `folder`; files of the hub's cache may lie beside their snapshot."""
    try:
        real, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    if real.is_relative_to(root):
        return True
    for parent in root.parents:  # models--OWNER--NAME/snapshots/REVISION links to models--OWNER--NAME/blobs
        if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
            return real.is_relative_to(parent.parent / "blobs")
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE).resolve()
    return root.is_relative_to(cache) and real.is_relative_to(cache)


def check_link(path: Path, folder: Path) -> None:
    """A `UserError` where a file or folder is a link that leads out of `folder`, or a pipe or device."""
    if path.is_symlink() and not is_inside(path, folder):
        raise UserError(
            f"{path} is a link to {shown(os.readlink(path))}, outside of {folder}, and is not followed; put a copy of "
            "the file there"
        )
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe would wait for ever
        raise UserError(f"{path} is neither a file nor a folder")


def check_links(folder: Path) -> None:
    """A `UserError` where anything in `folder`, at any depth, is a link that leads out of it."""
    seen = 0
    for place, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > _MAX_FILES:
            raise UserError(f"{folder} holds more than {_MAX_FILES} files, which no checkpoint does")
        for name in (*folders, *files):
            check_link(Path(place, name), folder)


def check_name(name: object, source: Path, folder: Path) -> Path:
    """Return the file that a name read from `source` means; a `UserError` where that is outside of `folder`."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise UserError(f"{source} names {shown(name)}, which is no name of a file")
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or not is_inside(folder / name, folder):
        raise UserError(f"{source} names {shown(name)}, outside of {folder}, which is not followed")
    return folder / name


@contextmanager
def about(key: str) -> Iterator[None]:
    """Errors inside name the key of the config that led to the folder."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{key}: {error}") from None


def check_model(path: str) -> None:
    """A `UserError` where the config or the weights in a folder (or on the hub) lead elsewhere."""
    folder = Path(path)
    if folder.is_dir():
        for entry in _entries(folder):
            check_link(entry, folder)
    if _find(path, ADAPTER_CONFIG) is not None:
        raise UserError(
            f"{path} holds adapters ({ADAPTER_CONFIG}), and no file may choose the model under them. Merge them "
            "first (whet merge), and name the merged folder"
        )
    config = _find(path, "config.json")
    if config is not None:
        tensors = _count_tensors(folder) if folder.is_dir() else None
        check_config(config, read_json(config), tensors or _MOST_MODULES)
    for name in _INDICES:
        index = _find(path, name)
        if index is not None:
            _check_index(index, folder if folder.is_dir() else index.parent)


def check_pickled_weights(path: str) -> None:
    """A `UserError` where the weights of a folder are files of torch.save that hold other bytes than they say."""
    folder = Path(path)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        from whet.model import torch_file

        for file in sorted(folder.glob("pytorch_model*.bin")):
            torch_file.check(file)


def check_config(file: Path, config: dict[str, Any], tensors: int = _MOST_MODULES) -> None:
    """A `UserError` where a config.json names code of the hub, files elsewhere, or more layers than tensors."""
    most = min(max(tensors, _FEW_LAYERS), _MOST_MODULES)
    for key, value, _ in _items(config):
        if _IMPLEMENTATION.fullmatch(key) and any("/" in text for text in _texts(value)):
            raise UserError(f"{file}: {key}={shown(value)} names code of the hub, which is not run")
        if key == "transformers_weights" and value is not None:
            check_name(value, file, file.parent)
        if key == "use_pretrained_backbone" and value:
            raise UserError(f"{file}: {key}={shown(value)} would load another model, which no file may choose")
        limits = ((_LAYERS, most), (_EXPERTS, _MOST_MODULES), (_SIZES, _MOST_SIZE))
        limit = next((most for names, most in limits if names.fullmatch(key)), None)
        is_number = isinstance(value, (int, float)) and not (value != value and _SIZES.fullmatch(key))  # NaN is no size
        if limit is not None and is_number and not value <= limit:
            raise UserError(f"{file}: {key}={shown(value)} is more than this model has weights for, or than any has")
        if isinstance(value, list) and len(value) > _MOST_LISTED:
            raise UserError(f"{file}: {shown(key)} lists {len(value)} values, which is more than any model has")


def check_tokenizer(path: str) -> dict[str, None]:
    """Return arguments for `from_pretrained` that make it ignore the files elsewhere that a tokenizer's config names.

    Honest configs have them as leftovers of the machine they were made on. A `UserError` where they cannot be ignored.
    """
    folder = Path(path)
    if folder.is_dir():
        for entry in _entries(folder):
            check_link(entry, folder)
    ignored: dict[str, None] = {}
    config = _find(path, "tokenizer_config.json")
    if config is not None:
        found = read_json(config)
        for name in _texts(found.get("fast_tokenizer_files")):
            check_name(name, config, config.parent)
        if found.get("init_inputs"):
            raise UserError(f"{config}: init_inputs={shown(found['init_inputs'])} names files, which are not read")
        ignored = {key: None for key, value in found.items() if _FILE_KEY.fullmatch(key) and isinstance(value, str)}
        ignored.pop("name_or_path", None)
    special = _find(path, "special_tokens_map.json")
    if special is not None:
        for key in read_json(special):
            if _FILE_KEY.fullmatch(key) or key in ("tokenizer_object", "init_inputs"):
                raise UserError(f"{special}: {shown(key)} is no special token; delete that entry")
    return ignored


def check_processor(path: str) -> None:
    """A `UserError` where a processor would load another model."""
    for name in ("processor_config.json", "audio_tokenizer_config.json"):
        file = _find(path, name)
        if file is not None and (name.startswith("audio") or read_json(file).get("audio_tokenizer")):
            raise UserError(f"{file} would load an audio tokenizer from elsewhere, which no file may choose")


def _find(path: str, name: str) -> Path | None:
    """The file of a model folder or of a repository on the hub; None where there is none."""
    folder = Path(path)
    if folder.is_dir():
        if (folder / name).is_dir():
            raise UserError(f"{folder / name} is a folder, and should be a file")
        return folder / name if os.path.lexists(folder / name) else None
    if folder.is_file():
        return None
    try:
        found = cached_file(
            path,
            name,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except (OSError, ValueError):  # no name of a repository, or none that is there: loading will say so
        return None
    return None if found is None else Path(found)


def _count_tensors(folder: Path) -> int:
    """Tensors in the safetensors files of a folder, 0 where they do not tell; only headers are read."""
    count = 0
    for file in folder.glob("*.safetensors"):
        try:
            with safe_open(file, framework="pt") as tensors:
                count += len(tensors.keys())
        except (OSError, SafetensorError):  # loading will say so
            return 0
    return count


def _entries(folder: Path) -> Iterator[Path]:
    """Files that may be read of a model folder, and the one folder that may be."""
    try:
        for entry in sorted(folder.iterdir()):
            if entry.name == _TEMPLATES:
                yield entry
                yield from sorted(entry.iterdir()) if entry.is_dir() else ()
            elif not entry.is_dir():
                yield entry
    except OSError as error:
        raise UserError(f"{folder} could not be read: {error.strerror or error}") from None


def _check_index(index: Path, folder: Path) -> None:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise UserError(f"{index} has no weight_map that says where the weights are")
    for name in {str(place): place for place in places.values()}.values():
        check_name(name, index, folder)


def _items(value: Any) -> Iterator[tuple[str, Any, int]]:
    """All keys of nested mappings and lists with their values and depths; those of a list have the empty key."""
    waiting = [(value, 0)]
    while waiting:
        value, depth = waiting.pop()
        pairs = value.items() if isinstance(value, dict) else (("", inner) for inner in value)
        for key, inner in pairs:
            yield key, inner, depth
            if isinstance(inner, (dict, list)) and depth <= _DEEPEST:
                waiting.append((inner, depth + 1))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def shown(value: object) -> str:
    """A value of a stranger's file in a message: short, and without characters that a terminal would obey."""
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
