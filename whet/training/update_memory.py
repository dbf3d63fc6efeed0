"""Memory of an update on a GPU that samples too: the cache of samples in flight stays where both fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MARGIN = 0.08  # share of the device that stays free: fragments, pools of captured graphs


class UpdateMemory:
    """Memory that torch held in the updates that were measured, at their beginnings and at their peaks."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._peak = self._added = 0  # bytes in all, and beyond those of the beginning

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the update inside the context."""
        begun = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        yield
        peak = torch.cuda.max_memory_allocated(self._device)
        self._peak, self._added = max(self._peak, peak), max(self._added, peak - begun)

    def fits(self) -> bool:
        """Return True if an update fits beside what others hold now; False before the first was measured.

        Its micro-batches may be twice as large as those that were measured: responses get longer.
        """
        free, total = torch.cuda.mem_get_info(self._device)
        needed = self._peak + self._added + _MARGIN * total
        return self._peak > 0 and needed <= free + torch.cuda.memory_reserved(self._device)
