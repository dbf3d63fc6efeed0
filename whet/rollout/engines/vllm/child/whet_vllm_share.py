"""Memory of a GPU that two processes see: one writes a buffer, the other opens it by its CUDA IPC handle.

A handle travels as text. Trainer and vLLM may have different versions of torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

# torch's own order of what describes a tensor: what differs between two buffers of bytes, by its place in it.
_FIELDS = {"memory": 7, "size": 8, "offset": 9, "counter": 11, "counter_offset": 12, "event": 13, "wait": 14}


def device_name(device: torch.device) -> str:
    """Return a name of a GPU that is the same in every process of this machine and unique to it; "" without a GPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def share(flat: Tensor) -> dict[str, Any]:
    """The handle of a buffer (uint8, all of its storage), which must stay alive for as long as others use it."""
    with torch.cuda.device(flat.device):
        _, arguments = reduce_tensor(flat)
    return {name: _to_text(arguments[place]) for name, place in _FIELDS.items()}


def open_shared(handle: dict[str, Any], device: torch.device) -> Tensor:
    """Another process's buffer, as a tensor of this one."""
    size = handle["size"]
    with torch.cuda.device(device):
        return rebuild_cuda_tensor(
            Tensor,
            torch.Size([size]),
            (1,),
            0,
            torch.storage.TypedStorage,
            torch.uint8,
            torch.cuda.current_device(),
            _from_text(handle["memory"]),
            size,
            handle["offset"],
            False,
            _from_text(handle["counter"]),
            handle["counter_offset"],
            _from_text(handle["event"]),
            handle["wait"],
        )


def _to_text(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _from_text(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
