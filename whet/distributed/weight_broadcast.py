"""The way of weights from ranks that learn to ranks that sample: a broadcast in buckets, with version and checksum.

The two are worlds of their own for torch.distributed, so that neither waits for the other but here. The first rank that
learns and every rank with an engine form a group besides, over gloo or, where both ends are on GPUs, NCCL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from whet.distributed import open_store, waiting_for_ranks

BUCKET_BYTES = 1 << 28
_ALIGNED = 16  # bytes; a tensor in a bucket can then be viewed as any dtype
_MEETING_TIME = timedelta(minutes=1)
_TIMEOUT = timedelta(minutes=30)  # whoever is gone or stuck is found sooner by its heartbeat


class LinkLostError(RuntimeError):
    """The other end of a link is gone, or one of the ends did not come."""


class Entry(NamedTuple):
    """A tensor on its way: what the receiver calls it and how it holds it."""

    name: str
    dtype: torch.dtype
    shape: torch.Size


class Meeting(NamedTuple):
    """Rendezvous of the two ends of a broadcast."""

    address: str
    port: int
    size: int  # receivers and the sender


def invite(receivers: int) -> tuple[dist.TCPStore, Meeting]:
    """Listen for the receivers, on a port that is free, at the address by which other ranks know this one."""
    address = os.environ["MASTER_ADDR"]
    store = open_store(address)
    return store, Meeting(address, store.port, receivers + 1)


def table_of(tensors: Iterable[tuple[str, Tensor]]) -> list[Entry]:
    """The entries of named tensors, in their order."""
    return [Entry(name, tensor.dtype, tensor.shape) for name, tensor in tensors]


class Link:
    """One end: index 0 sends, all others receive. Making it waits for the others."""

    def __init__(self, store: dist.TCPStore, index: int, size: int, device: torch.device) -> None:
        """Raise `LinkLostError` if somebody does not come within a minute."""
        self._device = device
        with waiting_for_ranks():
            _meet(store, index, size)
            if device.type == "cuda":
                from torch.distributed import ProcessGroupNCCL  # not in builds without CUDA

                self._group: Any = ProcessGroupNCCL(store, index, size, ProcessGroupNCCL.Options())
            else:
                self._group = dist.ProcessGroupGloo(store, index, size, _TIMEOUT)

    @classmethod
    def join(cls, meeting: Meeting, index: int, device: torch.device) -> Link:
        """A receiver's end."""
        store = dist.TCPStore(meeting.address, meeting.port, is_master=False, timeout=_TIMEOUT)
        return cls(store, index, meeting.size, device)

    def send(self, table: Sequence[Entry], tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Send tensors that come in the order of the table, and what they are when all have arrived."""
        given, total = iter(tensors), 0
        for bucket, flat in self._buckets(table):
            for (entry, place), (name, tensor) in zip(_places(bucket, flat), given):
                assert entry.name == name, f"{name} where {entry.name} was expected"
                place.copy_(tensor)
            total += _checksum(flat)
            self._broadcast(flat)
        self._broadcast(torch.tensor([version, len(table), _wrapped(total)], device=self._device))

    def receive(self, table: Sequence[Entry], into: Mapping[str, Tensor], version: int) -> None:
        """Fill tensors with what is sent; raises where that is another version, or arrived otherwise than it left."""
        total = 0
        for bucket, flat in self._buckets(table):
            self._broadcast(flat)
            total += _checksum(flat)
            for entry, place in _places(bucket, flat):
                into[entry.name].detach().copy_(place)
        sent = torch.zeros(3, dtype=torch.int64, device=self._device)
        self._broadcast(sent)
        found = [version, len(table), _wrapped(total)]
        if sent.tolist() != found:
            raise RuntimeError(f"the weights that came are not those that were sent: {found}, sent {sent.tolist()}")

    def announce(self, follow: bool) -> None:
        """Tell the receivers whether weights follow."""
        self._broadcast(torch.tensor([int(follow)], device=self._device))

    def heard(self) -> bool:
        """Return what the sender announces."""
        told = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._broadcast(told)
        return bool(told.item())

    def _buckets(self, table: Sequence[Entry]) -> Iterator[tuple[list[Entry], Tensor]]:
        """Runs of entries that fit into a bucket, and its bytes, which the next one overwrites; both ends cut alike."""
        runs: list[list[Entry]] = [[]]
        used = 0
        for entry in table:
            if runs[-1] and used + _bytes(entry) > BUCKET_BYTES:
                runs.append([])
                used = 0
            runs[-1].append(entry)
            used += _bytes(entry)
        room = max(sum(map(_bytes, run)) for run in runs)
        flat = torch.zeros(room, dtype=torch.uint8, device=self._device)
        for run in runs:
            yield run, flat[: sum(map(_bytes, run))]

    def _broadcast(self, tensor: Tensor) -> None:
        with waiting_for_ranks():
            try:
                self._group.broadcast(tensor, 0).wait()
            except RuntimeError as error:
                raise LinkLostError(str(error)) from error


def _meet(store: dist.TCPStore, index: int, size: int) -> None:
    """Wait until both ends are known to be there: a process group that waits for a dead one would wait long."""
    try:
        store.set(f"here_{index}", "")
        store.wait([f"here_{each}" for each in range(size)], _MEETING_TIME)
    except RuntimeError as error:
        raise LinkLostError(f"not all of {size} ends of a link came: {error}") from error


def _places(bucket: Sequence[Entry], flat: Tensor) -> Iterator[tuple[Entry, Tensor]]:
    """Each entry of a bucket with its place among the bytes."""
    offset = 0
    for entry in bucket:
        size = entry.shape.numel() * entry.dtype.itemsize
        yield entry, flat[offset : offset + size].view(entry.dtype).view(entry.shape)
        offset += _bytes(entry)


def _bytes(entry: Entry) -> int:
    return -(-entry.shape.numel() * entry.dtype.itemsize // _ALIGNED) * _ALIGNED


def _checksum(flat: Tensor) -> int:
    """The sum of the bytes as 64-bit words: as quick as reading them."""
    return int(flat.view(torch.int64).sum())


def _wrapped(total: int) -> int:
    return (total + 2**63) % 2**64 - 2**63
