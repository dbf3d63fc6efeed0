"""Errors about model folders whose files are missing, damaged or of another kind."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from whet.errors import UserError

# What reading a missing, damaged or foreign file can raise.
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    AttributeError,
    IndexError,
    ArithmeticError,
    MemoryError,
    UnpicklingError,
    SafetensorError,
    StrictDataclassError,
)
TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt")
LFS = b"version https://git-lfs"  # how the pointers begin that stand for files of a clone without Git LFS


def described(error: Exception) -> str:
    """Return the first paragraph of an error, as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split("\n\n")[0].split())


def read_error(error: Exception, what: str, path: str, key: str) -> UserError:
    """Return the error about a tokenizer or config that could not be read from a model."""
    if "trust_remote_code" in str(error):
        switch = f"{key.rpartition('.')[0]}.trust_remote_code"
        return UserError(f"{key}: {path} comes with Python code of its own; {switch}=true runs it, if you trust it")
    return UserError(f"{key}: no {what} could be read from {path}: {described(error)}")


def tokenizer_error(error: Exception, path: str, key: str) -> UserError:
    """Return the error about a tokenizer that could not be read, or that the folder does not have."""
    folder = Path(path)
    if folder.is_dir() and not any(found for name in TOKENIZERS for found in folder.glob(name)):
        return UserError(
            f"{key}: the folder {path} holds no tokenizer (tokenizer.json, tokenizer_config.json); copy the files "
            "of the model it was made from, or name that model here"
        )
    return read_error(error, "tokenizer", path, key)


def damage(file: Path, error: Exception) -> str:
    """Say what is wrong with a file of weights that cannot be read."""
    with open(file, "rb") as opened:
        if opened.read(len(LFS)) == LFS:
            return f"{file} is a pointer of Git LFS in place of weights; run `git lfs pull` in that folder"
    return f"the weights in {file} are damaged: {error}; fetch or copy the model again"
