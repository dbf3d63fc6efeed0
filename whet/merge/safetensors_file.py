"""Safetensors files written one tensor at a time: a model of any size in the memory of its largest tensor.

The format: the length of a JSON header in 8 bytes, the header (dtype, shape and place of every tensor), the bytes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whet.errors import UserError

MAX_BYTES = 5_000_000_000  # of a file; what `save_pretrained` and hubs are used to is as much
CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to be written, which is made when its turn comes."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]

    @property
    def size(self) -> int:
        """Bytes of it."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_model(folder: Path, entries: Iterable[Entry], max_bytes: int = MAX_BYTES) -> None:
    """`model.safetensors`, or several of at most `max_bytes` (but for a larger tensor) with their index."""
    entries = list(entries)
    if len({entry.name for entry in entries}) != len(entries):
        raise UserError(f"{folder}: two weights would have one name")
    groups = list(_groups(entries, max_bytes))
    if len(groups) == 1:
        write_tensors(folder / "model.safetensors", groups[0])
        return
    places: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        write_tensors(folder / name, group)
        places |= {entry.name: name for entry in group}
    index = {
        "metadata": {
            "total_parameters": sum(math.prod(entry.shape) for entry in entries),
            "total_size": sum(entry.size for entry in entries),
        },
        "weight_map": dict(sorted(places.items())),
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_tensors(file: Path, entries: list[Entry]) -> None:
    """One file, tensors in the order of entries, but those of wide dtypes first, so that all are aligned."""
    entries = sorted(entries, key=lambda entry: -entry.dtype.itemsize)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": CODES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.size],
        }
        at += entry.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for entry in entries:
            tensor = entry.make()
            if (tuple(tensor.shape), tensor.dtype) != (entry.shape, entry.dtype):
                raise UserError(
                    f"{entry.name} came out as {tensor.dtype} of shape {tuple(tensor.shape)}, and not as {entry.dtype} "
                    f"of {entry.shape}: the checkpoint contradicts itself"
                )
            check_finite(entry.name, tensor)
            out.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        out.flush()
        os.fsync(out.fileno())


def check_finite(name: str, tensor: Tensor) -> None:
    """A `UserError` where a weight holds NaN or infinities: no model of it would work."""
    # Numbers of 8 bits have no isfinite of their own.
    if tensor.is_floating_point() and not torch.isfinite(tensor.float() if tensor.itemsize < 2 else tensor).all():
        raise UserError(
            f"{name} holds values that are not finite (in {str(tensor.dtype).removeprefix('torch.')}): the run had "
            "diverged, or --dtype has too small a range; choose another checkpoint or dtype"
        )


def _groups(entries: list[Entry], max_bytes: int) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    for entry in entries:
        if group and sum(other.size for other in group) + entry.size > max_bytes:
            yield group
            group = []
        group.append(entry)
    yield group
