"""Random numbers that are a function of (seed, sample id, position) and of nothing else.

A sample is therefore the same whatever shared its batch, whichever slot it had and however often the run was killed.
The mixing function is splitmix64's finaliser (Steele, Lea, Flood 2014), written in wrapping int64 arithmetic so that
the same lines run on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def stream_keys(seed: int, sample_ids: Tensor, position: int = 0) -> Tensor:
    """One 64-bit key for each sample id (int64); with it, `uniforms` counts positions from `position`."""
    seeds = torch.full_like(sample_ids, _wrap(seed))
    return _mix(_mix(seeds + _GAMMA) ^ _mix(sample_ids * _GAMMA + _MIX1)) + _wrap(position * _GAMMA)


def uniforms(keys: Tensor, positions: Tensor) -> Tensor:
    """float64 in [0, 1) for the token at each position of the samples with these keys."""
    bits = _mix(keys + (positions + 1) * _GAMMA)
    return _shift_right(bits, 11).to(torch.float64) * (2.0**-53)


def _wrap(value: int) -> int:
    """Any Python int as a signed 64-bit one."""
    return (value + 2**63) % 2**64 - 2**63
