"""Activation offload: inputs of recomputed layers are kept in pinned host memory between forward and backward pass.

Under gradient checkpointing the inputs of layers are the activations that outlive a forward pass. Each is copied to the
host while its layer is computed, and its memory on the device is given back; in the backward pass it is copied back
while the layer after it is computed. Copies are exact, so no gradient changes by a bit.

All copies run on one stream, which gives them an order, and the stream of the passes waits for a copy

1. to the host, before the memory that was copied is given back: two activations later, so that it hardly ever waits;
2. to the device, before the activation is used;
3. in either direction, before an activation that nobody will ask for is dropped (a pass that failed).

So memory is given back at fixed places of a pass, and its peak does not depend on timing. A chunk of host memory is
free again when autograd drops the activation in it; what is written there next comes later on the same stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from whet.errors import UserError
from whet.model.pass_modes import OFFLOADING
from whet.system.host import host_memory

IN_FLIGHT = 2  # activations: two for each layer of a fused decoder, one for a layer that runs by its own modules
_CHUNK = 2**24  # bytes: a copy of half a millisecond
_SHARE = 0.8  # of the host's memory
_LEAST = 2**20  # bytes of an activation that is worth a copy


def set_activation_offload(model: nn.Module, wanted: bool) -> None:
    """Turn the offload of a model's activations on, if its device has memory of its own, or off."""
    device = next(model.parameters()).device
    if not wanted or not movable(device):
        OFFLOADING.pop(model, None)
    elif model not in OFFLOADING:
        OFFLOADING[model] = ActivationOffload(device).hooks


def movable(device: torch.device) -> bool:
    """Return True unless the device has the host's memory."""
    return device.type != "cpu"


class HostMemory:
    """Chunks of pinned memory, all of one size, that are used again and never given back; at most `most` bytes."""

    def __init__(self, pinned: bool, most: float, chunk: int = _CHUNK) -> None:
        self._pinned, self._most, self.chunk = pinned, most, chunk
        self._free: list[Tensor] = []
        self.made = 0  # chunks in all

    @property
    def used(self) -> int:
        """Chunks that hold an activation."""
        return self.made - len(self._free)

    def take(self, size: int) -> list[Tensor]:
        """Return chunks for so many bytes."""
        count = -(-size // self.chunk)
        while len(self._free) < count:
            self._free.append(self._new())
            self.made += 1
        return [self._free.pop() for _ in range(count)]

    def _new(self) -> Tensor:
        try:
            if (self.made + 1) * self.chunk <= self._most:
                return torch.empty(self.chunk, dtype=torch.uint8, pin_memory=self._pinned)
        except RuntimeError:  # what CUDA says of memory that cannot be pinned
            pass
        raise UserError(
            f"model.enable_activation_offload=true: after {self.made * self.chunk / 2**30:.1f} GiB there is no more "
            "host memory for activations; lower micro_batch_tokens of the same worker, or leave the key out"
        )

    def give(self, chunks: list[Tensor]) -> None:
        """Take chunks back."""
        self._free += chunks


class Copies:
    """The stream of copies, and the waiting of others for it; without CUDA a copy is done when it returns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> torch.cuda.Event | None:
        """Copy the second of each pair to the first, after all work that is queued now."""
        if self._stream is None:
            for to, source in pairs:
                to.copy_(source)
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
        return self._stream.record_event()

    def wait(self, copied: torch.cuda.Event | None) -> None:
        """Let work that is queued from now on begin after a copy."""
        if copied is not None:
            torch.cuda.current_stream(self._device).wait_event(copied)


class Activation:
    """A tensor that autograd has saved: on the device, on its way, or in host memory alone."""

    def __init__(self, tensor: Tensor, before: Activation | None, memory: HostMemory, copies: Copies) -> None:
        self._memory, self._copies = memory, copies
        self._before = None if before is None else ref(before)
        self._like = (tensor.shape, tensor.dtype, tensor.device)
        self._tensor: Tensor | None = None
        self._copied: torch.cuda.Event | None = None
        self._asked = False
        self._chunks: list[Tensor] = []
        self._chunks = memory.take(tensor.nbytes)
        self._tensor = tensor.detach()
        self._copied = copies.begin((to, part) for part, to in self._parts(self._tensor))

    def leave(self) -> None:
        """Give its memory on the device back."""
        self._copies.wait(self._copied)
        self._copied = self._tensor = None

    def value(self) -> Tensor:
        """Return the tensor, and begin to bring those that are asked for next."""
        self._asked = True
        self._bring()
        for other in islice(self._earlier(), IN_FLIGHT):
            if not other._asked:
                other._bring()
        self._copies.wait(self._copied)
        tensor, self._copied, self._tensor = self._tensor, None, None
        assert tensor is not None
        return tensor

    def _bring(self) -> None:
        if self._tensor is None:
            shape, dtype, device = self._like
            self._tensor = torch.empty(shape, dtype=dtype, device=device)
            self._copied = self._copies.begin(self._parts(self._tensor))

    def _earlier(self) -> Iterator[Activation]:
        """Iterate over activations of the same pass, from the one before this."""
        found: Activation | None = self
        while found is not None and found._before is not None:
            if (found := found._before()) is not None:
                yield found

    def _parts(self, tensor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over pieces of the tensor's bytes and the places of each in host memory."""
        pieces = tensor.view(-1).view(torch.uint8).split(self._memory.chunk)
        return ((piece, chunk[: len(piece)]) for piece, chunk in zip(pieces, self._chunks, strict=True))

    def __del__(self) -> None:
        self.leave()
        self._memory.give(self._chunks)


class ActivationOffload:
    """The offload of one model's activations."""

    def __init__(self, device: torch.device) -> None:
        self.memory = HostMemory(device.type == "cuda", _SHARE * host_memory())
        self._copies = Copies(device)
        self._recent: deque[ref[Activation]] = deque()  # those on the device; autograd owns them

    def hooks(self) -> saved_tensors_hooks:
        """Return a context that offloads what autograd saves in it; of a checkpointed layer these are its inputs."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Tensor | Activation:
        if not _worth_a_copy(tensor):
            return tensor.detach()  # an output of its own node would keep itself alive
        before = self._recent[-1]() if self._recent else None
        kept = Activation(tensor, before, self.memory, self._copies)
        self._recent.append(ref(kept))
        if len(self._recent) > IN_FLIGHT and (oldest := self._recent.popleft()()) is not None:
            oldest.leave()
        return kept

    def _unpack(self, kept: Tensor | Activation) -> Tensor:
        return kept.value() if isinstance(kept, Activation) else kept


def _worth_a_copy(tensor: Tensor) -> bool:
    """Return True for large activations; weights are on the device anyway, and views of them are not contiguous."""
    if type(tensor) is not Tensor or not movable(tensor.device):
        return False
    return tensor.is_floating_point() and tensor.nbytes >= _LEAST and tensor.is_contiguous()
