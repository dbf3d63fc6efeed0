"""Python objects between ranks: pickled, and unpickled only where a secret of the job vouches for the bytes.

torch.distributed does not know who its peers are: whoever reaches gloo's ports first can take a rank's place.
torch's own object collectives unpickle whatever arrives.
"""

from __future__ import annotations

import hmac
import os
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from whet.system.secret import SECRET_VARIABLE

_TAG_BYTES = 32


def broadcast(value: Any, group: Any = None, source: int = 0, device: torch.device | str = "cpu") -> Any:
    """The value of one rank of a group, on every rank."""
    mine = dist.get_rank(group) == source
    content = _seal(value, device) if mine else torch.empty(0, dtype=torch.uint8, device=device)
    size = torch.tensor([len(content)], device=device)
    dist.broadcast(size, group=group, group_src=source)
    if not mine:
        content = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(content, group=group, group_src=source)
    return value if mine else _open(content)


def all_gather(value: Any, group: Any = None, device: torch.device | str = "cpu") -> list[Any]:
    """The values of all ranks of a group, on every rank."""
    content, sizes = _padded(value, group, device)
    found = [torch.empty_like(content) for _ in sizes]
    dist.all_gather(found, content, group=group)
    return [_open(each[:size]) for each, size in zip(found, sizes)]


def gather(value: Any, group: Any = None, device: torch.device | str = "cpu") -> list[Any] | None:
    """The values of all ranks of a group, on the first one; None on the others."""
    content, sizes = _padded(value, group, device)
    first = dist.get_rank(group) == 0
    found = [torch.empty_like(content) for _ in sizes] if first else None
    dist.gather(content, found, group=group, group_dst=0)
    return None if found is None else [_open(each[:size]) for each, size in zip(found, sizes)]


def _padded(value: Any, group: Any, device: torch.device | str) -> tuple[Tensor, list[int]]:
    """A sealed value, as long as the longest of the group, and the lengths of all."""
    content = _seal(value, device)
    size = torch.tensor([len(content)], device=device)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    lengths = [int(each) for each in sizes]
    return torch.nn.functional.pad(content, (0, max(lengths) - len(content))), lengths


def _seal(value: Any, device: torch.device | str) -> Tensor:
    content = pickle.dumps(value)
    return torch.frombuffer(bytearray(_tag(content) + content), dtype=torch.uint8).to(device)


def _open(sealed: Tensor) -> Any:
    data = sealed.cpu().numpy().tobytes()
    tag, content = data[:_TAG_BYTES], data[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(content)):
        raise RuntimeError(
            "an object from another rank does not carry this job's secret: a stranger took its place, or "
            f"{SECRET_VARIABLE} is not the same on all machines"
        )
    return pickle.loads(content)


def _tag(content: bytes) -> bytes:
    """Ranks that somebody else started, without a secret, get a checksum."""
    return hmac.digest(os.environ.get(SECRET_VARIABLE, "").encode(), content, "sha256")
