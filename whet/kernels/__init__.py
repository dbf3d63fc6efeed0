"""Triton kernels for one NVIDIA GPU, and the plain functions that launch them.

The modules here import triton; nobody imports them before `available` has said that it is there. They know tensors and
nothing else of whet. On a machine without a GPU, `TRITON_INTERPRET=1` runs the same kernels on CPU tensors, slowly.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch


def available(device: torch.device | str) -> bool:
    """Whether the kernels run on tensors of this device: on CUDA, or anywhere in triton's interpreter."""
    return _has_triton() and (torch.device(device).type == "cuda" or interpreted())


def interpreted() -> bool:
    """Whether triton runs kernels in its interpreter; it reads the variable when a kernel is defined."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
