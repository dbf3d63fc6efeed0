"""A Hugging Face folder around merged weights: config, generation config, tokenizer, processor; written to the side."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel

from whet.config.texts import size_text
from whet.errors import UserError
from whet.merge.safetensors_file import Entry
from whet.model.trust import ADAPTER_CONFIG, check_link, check_links, check_tokenizer, read_json

GENERATION = "generation_config.json"
_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".gguf",
    ".h5",
    ".msgpack",
    ".safetensors.index.json",
    ".bin.index.json",
)
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "spiece.model")
_FILES = (".json", ".jinja", ".txt", ".model", ".py", ".tiktoken")  # what a folder has besides weights


def is_weights(path: Path) -> bool:
    """Return True for files of weights, and for their index."""
    return path.name.endswith(_WEIGHTS)


def describing_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that describe a model: config, tokenizer, processor, code."""
    found = {
        path.name: path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name.endswith(_FILES) and not is_weights(path)
    }
    for path in found.values():
        check_link(path, folder)
    return found


def gather(local_dir: Path, hf_model_path: str | None) -> dict[str, Path]:
    """Collect the files that describe the model: beside the shards, else from the model that the run began with."""
    beside = local_dir / "huggingface"
    check_link(beside, local_dir)
    if beside.is_dir():
        check_links(beside)  # of everything in it: the folder may be uploaded
    found = describing_files(beside) if beside.is_dir() else {}
    if "config.json" not in found and (local_dir / "config.json").is_file():  # early verl kept no folder for them
        found = describing_files(local_dir)
        found.pop("fsdp_config.json", None)
    first = None if hf_model_path is None else _first_model(hf_model_path)
    for name, path in (describing_files(first) if first is not None else {}).items():
        found.setdefault(name, path)
    found.pop(ADAPTER_CONFIG, None)  # beside merged weights it would mean that there are adapters as well
    for what, names in (("config.json", ("config.json",)), ("tokenizer", _TOKENIZER)):
        if not any(name in found for name in names):
            raise UserError(
                f"{beside} holds no {what}: name the model that the run began with, a folder or a hub id, by "
                "--hf_model_path"
            )
    return found


def _first_model(hf_model_path: str) -> Path:
    """The folder of the model that the run began with, as the command line names it; no file can."""
    if Path(hf_model_path).expanduser().is_dir():
        return Path(hf_model_path).expanduser()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hf_model_path, allow_patterns=[f"*{ending}" for ending in _FILES]))
    except Exception as error:  # no such folder or repository, no network: the hub's client raises many things
        reason = str(error).partition("\n")[0]
        raise UserError(f"--hf_model_path={hf_model_path} is no folder, and not on the hub: {reason}") from None


def write_descriptions(
    folder: Path, files: dict[str, Path], model: PreTrainedModel, dtype: torch.dtype, trust_remote_code: bool
) -> list[str]:
    """Copy what describes the model, with the class and dtype that were written; what had to be made up."""
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
    config = read_json(folder / "config.json")
    config["architectures"] = [type(model).__name__]
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    ignored = check_tokenizer(str(folder))
    try:
        AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, **ignored)
    except Exception as error:  # the Rust side of tokenizers raises nothing more specific
        reason = str(error).partition("\n")[0]
        hint = "" if trust_remote_code else " (code that comes with it is run with --trust-remote-code)"
        place = files["config.json"].parent
        raise UserError(f"the tokenizer in {place} could not be read: {reason}{hint}") from None
    if GENERATION in files or not model.can_generate():
        return []
    model.generation_config.save_pretrained(folder)
    return [f"there was no {GENERATION}; the one written is what config.json says"]


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A folder to the side, whose files move into `target` when the block ends well; else nothing is left of it."""
    made = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        side = target / f".merging-{os.getpid()}"
        side.mkdir()
    except OSError as error:
        raise UserError(f"{target} cannot be made: {error}") from None
    try:
        yield side
        for path in side.iterdir():
            os.replace(path, target / path.name)
    except (OSError, MemoryError, RuntimeError) as error:  # torch says by the last one that memory is short
        raise UserError(f"{target} could not be written: {error}") from error
    finally:
        shutil.rmtree(side, ignore_errors=True)
        if made and not any(target.iterdir()):
            target.rmdir()


def check_room(target: Path, entries: list[Entry]) -> None:
    """A `UserError` where the disk cannot hold them."""
    there = next(path for path in (target, *target.absolute().parents) if path.exists())
    needed, free = sum(entry.size for entry in entries), shutil.disk_usage(there).free
    if needed > free:
        raise UserError(f"{target}: the model takes {size_text(needed)}, and the disk has {size_text(free)} free")


def check_target(target: Path, reads_from: Path) -> None:
    """Weights go to a new or empty folder, or beside the config that they belong to; never over other weights."""
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder")
    inside = [path for path in target.iterdir() if not path.name.startswith(".merging-")] if target.is_dir() else []
    if any(is_weights(path) for path in inside):
        raise UserError(f"{target} holds weights already, which are kept; name another folder")
    if any(path.name == "metrics.jsonl" or path.name.startswith("global_step_") for path in inside):
        raise UserError(f"{target} is a run folder; name another one for the model")
    if inside and target.resolve() != reads_from.resolve():
        raise UserError(f"{target} exists and is not an empty folder; name a new one")


def upload(folder: Path, repo: str, private: bool, say: Callable[[str], None]) -> None:
    """Push a folder to the hub, as a model."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repo_id=repo, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=repo, folder_path=folder, repo_type="model", ignore_patterns=".*")
    except Exception as error:  # no token, no network, no such name: the hub's client raises many things
        reason = str(error).partition("\n")[0]
        raise UserError(f"the model is in {folder}, but could not be uploaded to {repo}: {reason}") from None
    say(f"uploaded to {done.repo_url}")


def check_upload(repo: str) -> None:
    """A `UserError` before work starts where the hub would not let us in, or the name is none."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
        HfApi().whoami()
    except HFValidationError as error:
        raise UserError(f"--hf_upload_path={repo} is no name of a repository: {error}") from None
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"--hf_upload_path={repo}: the hub does not know you ({reason}); hf auth login") from None
