"""Keys and values of the sequences being decoded.

A slot is one sequence's page: on a CPU, contiguous memory that torch's fused attention reads in place is worth more
than small pages, and running sequences always fill slots 0..B-1, so that a decode step works on a view and gathers
nothing. Prompts are prefilled once and copied into the slots of their samples. The cache grows as responses do.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GROWTH = 64  # tokens by which a slot grows, at least


class SlotCache:
    """(layers, 2, slots, capacity, kv heads, head dim); index 1 is key or value."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (layers, heads, head_dim)
        self._dtype, self._device = dtype, device
        self.data = self._empty(0, 0)

    def _empty(self, slots: int, capacity: int) -> Tensor:
        layers, heads, head_dim = self._shape
        return torch.empty((layers, 2, slots, capacity, heads, head_dim), dtype=self._dtype, device=self._device)

    def reserve(self, slots: int, tokens: int) -> None:
        """Make room for `slots` sequences of `tokens` tokens, keeping what is there."""
        have_slots, have_tokens = self.data.shape[2:4]
        if slots <= have_slots and tokens <= have_tokens:
            return
        grown = self._empty(
            max(slots, have_slots),
            have_tokens if tokens <= have_tokens else max(tokens, have_tokens * 5 // 4) + _GROWTH,
        )
        # Layer by layer: at no moment are two whole caches touched, and untouched memory costs nothing.
        for new, old in zip(grown, self.data):
            new[:, :have_slots, :have_tokens] = old
        self.data = grown

    def fill(self, slot: int, kv: Tensor) -> None:
        """Copy a prefilled prompt (layers, 2, P, heads, head_dim) into a slot."""
        self.data[:, :, slot, : kv.shape[2]] = kv

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` of one slot over another."""
        self.data[:, :, target, :tokens] = self.data[:, :, source, :tokens]

    def release(self) -> None:
        """Give the memory back."""
        self.data = self._empty(0, 0)
