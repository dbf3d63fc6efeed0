"""Memory of the paged cache: it grows in place, ends where the device does, and comes back as large as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from whet.rollout.engine import KEPT_CACHE, kept_cache
from whet.rollout.engines.native import storage as native_storage
from whet.rollout.engines.native.allocator import PageAllocator
from whet.rollout.engines.native.pages import PAGE
from whet.rollout.engines.native.storage import DeviceStorage, PageStorage

LAYERS, HEADS, HEAD_DIM = 3, 2, 16
ROW = HEADS * PAGE * HEAD_DIM * 4  # bytes of a page in one layer, keys or values
PAGE_BYTES = 2 * LAYERS * ROW
TOTAL = 1000 * PAGE_BYTES
GRAIN = 3 * ROW // 2  # pages and grains have no common border


class HostMemory:
    """`DeviceMemory` in host memory, of which at most `most` bytes can be mapped."""

    most = TOTAL

    def __init__(self, device: torch.device, nbytes: int, rows: int) -> None:
        self.row_bytes, self._rows = -(-nbytes // GRAIN) * GRAIN, rows
        self.nbytes, self.mapped_row = self.row_bytes * rows, 0
        self._data = torch.zeros(self.nbytes, dtype=torch.uint8)

    def map(self, nbytes: int) -> None:
        wanted = -(-nbytes // GRAIN) * GRAIN
        assert wanted <= self.row_bytes
        if wanted * self._rows > self.most:
            raise torch.OutOfMemoryError("no more")
        self.mapped_row = max(self.mapped_row, wanted)

    def unmap(self) -> None:
        self.mapped_row = 0

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return self._data.view(dtype).view(shape)


def _model(weights: int = 0) -> Any:
    config = LlamaConfig(
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=HEADS, head_dim=HEAD_DIM, hidden_size=64
    )
    parameters = [torch.empty(weights // 4, device="meta")]
    return SimpleNamespace(
        config=config, dtype=torch.float32, device=torch.device("cpu"), parameters=lambda: iter(parameters)
    )


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A device of `TOTAL` bytes, and what others leave of it."""
    state = {"free": TOTAL, "reserved": 0, "allocated": 0}
    monkeypatch.setattr(native_storage, "DeviceMemory", HostMemory)
    monkeypatch.setattr(HostMemory, "most", TOTAL)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=TOTAL))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (state["free"], TOTAL))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: state["reserved"])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: state["allocated"])
    return state


def test_pages_of_a_growing_cache_keep_address_and_contents(free: dict[str, int]) -> None:
    storage = DeviceStorage(_model(), 0.5)
    assert storage.capacity() == 500
    assert storage.grow(3, 400) == -(-500 // 32)
    first = storage.data
    first[:, :, 1] = torch.arange(LAYERS * 2.0).view(LAYERS, 2, 1, 1, 1)
    assert storage.grow(300, 400) == 300
    assert storage.data is first
    assert storage.data[:, :, 1, 0, 0, 0].flatten().tolist() == list(range(2 * LAYERS))
    assert storage.data.shape == (LAYERS, 2, 500, HEADS, PAGE, HEAD_DIM)
    assert storage.data.stride()[2:] == (HEADS * PAGE * HEAD_DIM, PAGE * HEAD_DIM, HEAD_DIM, 1)
    assert not storage.data[:, :, 2:].any()  # no page reaches into another


def test_the_cache_ends_where_memory_does(free: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DeviceStorage(_model(weights=100 * PAGE_BYTES), 0.5)
    assert storage.capacity() == 400  # weights are part of the share
    free["free"] = 200 * PAGE_BYTES
    assert storage.room() == 150  # less a twentieth of the device
    free |= {"reserved": 60 * PAGE_BYTES, "allocated": 20 * PAGE_BYTES}
    assert storage.room() == 190  # torch gives back what it does not use
    monkeypatch.setattr(HostMemory, "most", 70 * PAGE_BYTES)
    allocator = PageAllocator(storage, window=8)
    assert allocator._take(100) is None
    assert 50 < allocator.pool.pages <= 70  # others were quicker: what could be had
    assert len(allocator._take(50) or ()) == 50
    assert allocator._take(100) is None


def test_a_released_cache_comes_back_as_large_as_it_was(free: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DeviceStorage(_model(weights=TOTAL // 10), 0.9)
    allocator = PageAllocator(storage, window=8)
    pages = allocator._take(120) or []
    had = allocator.pool.pages
    allocator.pool.give(pages)
    allocator.release()
    assert storage._memory.mapped_row == 0  # type: ignore[union-attr]
    assert allocator.pool.pages == 1
    assert len(allocator._take(1) or ()) == 1
    assert allocator.pool.pages == had


def test_a_small_cache_of_a_small_model_is_kept(free: dict[str, int]) -> None:
    storage = DeviceStorage(_model(weights=TOTAL // 100), 0.9)
    storage.grow(100, 300)
    assert not storage.release()
    storage.grow(250, 300)
    assert storage.release()
    assert kept_cache(TOTAL, TOTAL // 100) == round(KEPT_CACHE * TOTAL)
    assert kept_cache(TOTAL, TOTAL // 20) == 0


def test_a_cache_in_host_memory_grows_with_what_is_asked_for() -> None:
    storage = PageStorage(_model())
    assert storage.grow(5, 100) == 5
    storage.data[:, :, 4] = 7
    assert storage.grow(6, 100) == 10
    assert storage.grow(80, 100) == 80
    assert storage.grow(90, 100) == 100
    assert (storage.data[:, :, 4] == 7).all()
    assert not storage.data[:, :, 5:].any()
    assert storage.release()
    assert storage.data.numel() == 0
