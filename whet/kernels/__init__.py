"""Triton kernels for one NVIDIA GPU, and the plain functions that launch them.

The modules here import triton, `prefixes.py` aside; nobody imports them before `available` has said that it is there.
They know tensors and nothing else of whet. Their tests run them on CPU tensors, slowly, in triton's interpreter.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


def available(device: torch.device | str) -> bool:
    """Return True if the kernels support this device."""
    return torch.device(device).type == "cuda" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
