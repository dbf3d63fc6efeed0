"""Memory of a paged key-value cache. It grows as pages are asked for and can be given back as a whole.

`PageStorage` works on any device and moves when it grows. `DeviceStorage` is for CUDA: its addresses never change, so
that captured graphs stay valid while memory is added behind the addresses, lent to training and taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.kernels.device_memory import DeviceMemory
from whet.rollout.engine import kept_cache
from whet.rollout.engines.native.pages import PAGE

_MOST = 1 << 20  # pages of a cache in host memory
_STEPS = 32  # parts of its capacity by which a cache on a device grows
_FINEST = 512  # parts of its capacity below which no more memory is looked for on a device that is full
RESERVE = 0.05  # share of the device left to the activations of prefills and to what CUDA itself allocates


class CacheShape(NamedTuple):
    """Sizes of the cache that do not depend on the number of pages."""

    layers: int
    kv_heads: int
    head_dim: int

    @staticmethod
    def of(model: PreTrainedModel) -> CacheShape:
        """Read the sizes from a model's config."""
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return CacheShape(config.num_hidden_layers, heads, head_dim)

    @property
    def row_elements(self) -> int:
        """Elements of one page in one layer, of keys or of values."""
        return self.kv_heads * PAGE * self.head_dim

    def size(self, pages: int) -> tuple[int, ...]:
        """(layers, 2, pages, kv heads, page, head dim); index 1 is key or value."""
        return (self.layers, 2, pages, self.kv_heads, PAGE, self.head_dim)


def pages_within(share: float, total: int, weights: int, page_bytes: int) -> int:
    """Return the pages in an engine's share of a device of `total` bytes, beside the model's weights."""
    return max(2, int((share * total - weights) // page_bytes))


class PageStorage:
    """Pages in memory that torch allocates."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype | None = None) -> None:
        """`dtype` is that of keys and values, by default the model's."""
        self.shape, self.dtype, self.device = CacheShape.of(model), dtype or model.dtype, model.device
        self.data = torch.empty(self.shape.size(0), dtype=self.dtype, device=self.device)

    def capacity(self) -> int:
        """Most pages that the configuration allows, whatever else is in memory."""
        return _MOST

    def room(self) -> int:
        """Most pages that the cache may have now."""
        return self.capacity()

    def grow(self, least: int, most: int) -> int:
        """Enlarge the cache to at least `least` and at most `most` pages, keeping its contents; the pages it has now.

        Fewer than `least` are returned where memory ends.
        """
        have = self.data.shape[2]
        grown = torch.zeros(self.shape.size(min(most, max(least, 2 * have))), dtype=self.dtype, device=self.device)
        grown[:, :, :have] = self.data
        self.data = grown
        return grown.shape[2]

    def release(self) -> bool:
        """Give the memory back; False if it is small enough to be kept, contents included."""
        self.data = torch.empty(self.shape.size(0), dtype=self.dtype, device=self.device)
        return True


class DeviceStorage(PageStorage):
    """Pages at fixed addresses of a CUDA device.

    Addresses are reserved once, for `capacity` pages. Keys and values of a layer form one row of pages, and memory is
    mapped behind the first pages of every row: (layers, 2) rows of the tensor, of which page i is backed if i is less
    than the number of pages that `grow` returned last.
    """

    def __init__(self, model: PreTrainedModel, memory_share: float, dtype: torch.dtype | None = None) -> None:
        super().__init__(model, dtype)
        self._share = memory_share
        self._total = torch.cuda.get_device_properties(self.device).total_memory
        self._weights = sum(p.numel() * p.element_size() for p in model.parameters())
        self._row_bytes = self.shape.row_elements * self.dtype.itemsize
        self._page_bytes = 2 * self.shape.layers * self._row_bytes
        self._memory: DeviceMemory | None = None
        self._pages = 0

    def capacity(self) -> int:
        """Pages in the engine's share of the device, beside the model's weights."""
        return pages_within(self._share, self._total, self._weights, self._page_bytes)

    def room(self) -> int:
        """The same, less what others hold of that share."""
        free, _ = torch.cuda.mem_get_info(self.device)
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        free += max(0, unused) + self._pages * self._page_bytes  # torch gives back what its allocator does not use
        return max(2, min(self.capacity(), int((free - RESERVE * self._total) // self._page_bytes)))

    def grow(self, least: int, most: int) -> int:
        """Map more memory behind the addresses, in steps of a part of the capacity."""
        target = min(most, max(least, self._pages + -(-self.capacity() // _STEPS)))
        step, finest = target - self._pages, max(1, self.capacity() // _FINEST)
        while self._pages < target and step >= finest:
            try:
                self._map(min(target, self._pages + step))
            except torch.OutOfMemoryError:  # others were quicker: as much as there is
                step //= 2
        return self._pages

    def _map(self, pages: int) -> None:
        if self._memory is None:
            self._memory = DeviceMemory(self.device, self.capacity() * self._row_bytes, rows=2 * self.shape.layers)
            self._memory.map(pages * self._row_bytes)
            self.data = self._view(self._memory)
        else:
            self._memory.map(pages * self._row_bytes)
        self._pages = pages

    def _view(self, memory: DeviceMemory) -> Tensor:
        """All addresses as one tensor; rows are `memory.row_bytes` apart, which is a little more than they hold."""
        flat = memory.tensor((memory.nbytes,), torch.uint8).view(self.dtype)
        apart, page = memory.row_bytes // self.dtype.itemsize, self.shape.row_elements
        strides = (2 * apart, apart, page, PAGE * self.shape.head_dim, self.shape.head_dim, 1)
        return flat.as_strided(self.shape.size(self.capacity()), strides)

    def release(self) -> bool:
        """Unmap the memory unless it is little; the addresses stay."""
        if self._memory is None or self._pages * self._page_bytes <= kept_cache(self._total, self._weights):
            return False
        self._memory.unmap()
        self._pages = 0
        return True
