"""The cache of samples in flight stays beside an update only where both are sure to fit."""

from __future__ import annotations

import pytest
import torch

from whet.training.update_memory import UpdateMemory

GIB = 2**30


@pytest.mark.parametrize(
    ("begun", "peak", "free", "fits"),
    [
        (20, 50, 60, True),  # 50 + 30 more + 8 of 100 are within 60 + 50
        (20, 50, 37, False),  # the same, and 87 are left
        (45, 50, 14, True),  # 50 + 5 + 8 are within 64
        (45, 50, 12, False),
    ],
)
def test_the_cache_stays_where_larger_updates_fit_too(
    monkeypatch: pytest.MonkeyPatch, begun: int, peak: int, free: int, fits: bool
) -> None:
    held = {"memory_allocated": begun, "max_memory_allocated": peak, "memory_reserved": 50}
    for name, value in held.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, value=value: value * GIB)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * GIB, 100 * GIB))
    memory = UpdateMemory(torch.device("cuda"))
    assert not memory.fits(), "nothing is known before the first update"
    with memory.measured():
        pass
    assert memory.fits() is fits
