"""Copies from the host to a device for which the host does not wait."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device; it is there when the device comes to what is launched next."""
    host = torch.from_numpy(np.ascontiguousarray(array))
    # Pinned: a copy from pageable memory would wait for all work queued on the device.
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
