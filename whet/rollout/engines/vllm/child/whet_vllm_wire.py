"""Frames on a socket: a JSON header and bytes behind it, of a bucket of weights or of samples."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes; a tensor in a bucket can then be viewed as any dtype
_LONGEST_HEADER = 1 << 30


def send(connection: socket.socket, message: dict[str, Any], body: memoryview | None = None) -> None:
    """Write one frame."""
    header = json.dumps(message, separators=(",", ":")).encode()
    connection.sendall(struct.pack("!QQ", len(header), 0 if body is None else body.nbytes) + header)
    if body is not None:
        connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """Read one frame; EOFError when the other end is gone."""
    header, body = struct.unpack("!QQ", _read(connection, 16))
    if header > _LONGEST_HEADER:
        raise ValueError(f"a header of {header} bytes is not this protocol")
    return json.loads(bytes(_read(connection, header))), _read(connection, body)


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data


def buckets(weights: Iterable[tuple[str, Tensor]], size: int) -> Iterator[tuple[list[list[Any]], list[Tensor], int]]:
    """Tensors that go together into buckets of about `size` bytes: (name, dtype, shape, offset) of each, the tensors,
    and the bytes they need side by side."""
    table: list[list[Any]] = []
    kept: list[Tensor] = []
    used = 0
    for name, tensor in weights:
        if kept and used + tensor.nbytes > size:
            yield table, kept, used
            table, kept, used = [], [], 0
        table.append([name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), used])
        kept.append(tensor)
        used += max(-(-tensor.nbytes // _ALIGNED), 1) * _ALIGNED  # an empty tensor still makes a bucket
    if kept:
        yield table, kept, used


def fill(flat: Tensor, table: list[list[Any]], tensors: list[Tensor]) -> Tensor:
    """Lay the tensors of a bucket into a buffer that is large enough."""
    flat.zero_()  # the gaps between tensors count in the checksum
    for (_, _, shape, offset), tensor in zip(table, tensors):
        flat[offset : offset + tensor.nbytes].view(tensor.dtype).view(shape).copy_(tensor)
    return flat


def unpack(table: list[list[Any]], flat: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a bucket, as views of its bytes."""
    for name, kind, shape, offset in table:
        dtype: torch.dtype = getattr(torch, kind)
        count = torch.Size(shape).numel() * dtype.itemsize
        yield name, flat[offset : offset + count].view(dtype).view(shape)


def checksum(flat: Tensor) -> int:
    """The sum of the bytes as 64-bit words, wrapping: as quick as reading them."""
    return int(flat.view(torch.int64).sum())
