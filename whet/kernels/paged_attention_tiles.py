"""Shares, blocks and launch options of paged attention, chosen on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton


class Shares(NamedTuple):
    """How a query's keys are cut: `keys` positions a share (0: not at all), and programs that take shares at once.

    Results depend on `keys`, and not on `at_once`.
    """

    keys: int
    at_once: int


UNCUT = Shares(0, 1)


def choose_shares(batch: int, kv_heads: int, sms: int, head_dim: int, longest: int, dtype: torch.dtype) -> Shares:
    """Shares for sequences of up to `longest` tokens, one program each where so few queries leave the device idle.

    The size of a share does not depend on the batch, but where decoding agrees with training to the bit: training
    knows no shares, so there they begin at 2,048 keys, and larger batches have none.
    """
    agrees = head_dim <= 64 and dtype.itemsize > 1
    keys = max(2048 if agrees else 256, triton.next_power_of_2(longest // 64))
    # As many programs as keep the device busy: two warps on each multiprocessor.
    enough = batch * kv_heads * launch_options(head_dim, dtype)["num_warps"] > 2 * sms
    if longest <= keys or (agrees and enough):
        return UNCUT
    return Shares(keys, 1 if enough else -(-longest // keys))


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
