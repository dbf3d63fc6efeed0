"""Write a taught model into the folder of shipped files, with checksums."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from whet.assets.shipped import CHECKSUMS, TOKENIZER, WEIGHTS


def ship(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights and tokenizer of the built-in `name` under `folder`, and record their checksums."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)  # which names tensors as checkpoints do, and leaves tied ones out
        weights = load_file(Path(scratch) / WEIGHTS)
    # save_file would make a file that only its owner can read, and a wheel would carry it so.
    (target / WEIGHTS).write_bytes(save({key: halved(key, tensor) for key, tensor in weights.items()}))
    (target / TOKENIZER).write_text(tokenizer.backend_tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    record(folder, [f"{name}/{file}" for file in (WEIGHTS, TOKENIZER)])


def halved(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Round to half precision: half the size, and the eleven bits it keeps are more than a warm start needs."""
    half = tensor.half()
    if not half.isfinite().all():
        raise ValueError(f"{name} has values that half precision does not")
    return half


def record(folder: Path, files: list[str]) -> None:
    """Replace the recorded checksums of `files`, in the form that `sha256sum --check` reads."""
    path = folder / CHECKSUMS
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    digests = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    digests |= {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    text = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    path.write_text(text, encoding="ascii", newline="\n")
