"""Shares, blocks and launch options of paged attention, chosen on the host."""

from __future__ import annotations

import math
from typing import Any

import torch


def choose_splits(batch: int, kv_heads: int, sms: int, longest: int, narrow: bool = False) -> int:
    """Shares to cut each query's keys into so that a small batch still fills the device; 1 for a large one.

    `narrow` says that keys are in 8 bits, where programs have one warp instead of four.
    """
    programs = max(1, batch * kv_heads)
    wanted = (8 if narrow else 4) * sms / programs  # about what is on the device at once
    # Shares are added in another order than training adds: below this length, agreeing with it is worth more.
    worth = longest / (256 if narrow and longest >= 4096 else 2048)
    return 2 ** int(math.log2(max(1.0, min(wanted, worth, 32.0))))


def launch_options(head_dim: int, dtype: torch.dtype) -> dict[str, Any]:
    """Block size and launch options: functions of the model only, so that all calls agree to the bit."""
    most = 8192 if dtype.itemsize <= 2 else 2048  # elements of a block of keys; fp32 products need the registers
    block = max(16, min(64, most // head_dim))
    # One warp holds whole rows of scores, as those of packed_attention.py do, and adds them up in the same order: the
    # two then agree to the bit. Larger heads need more warps to keep up with the memory, and agree up to rounding.
    warps = 1 if head_dim <= 64 else 4
    if dtype.itemsize == 1:  # what is read is widened in registers: many small programs keep more of it on its way
        block, warps = 32, 1 if head_dim <= 128 else 4
    # Fused multiply-adds are off: whether two roundings become one must not depend on the variant that was compiled.
    return {"BLOCK_N": block, "num_warps": warps, "num_stages": 3, "enable_fp_fusion": False}
