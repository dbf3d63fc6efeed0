"""Decoding on a CUDA device: a token is one replay of a captured graph.

Decoding a small model one kernel at a time is bound by the host that launches them. Here the forward pass, sampling and
bookkeeping of one token are captured once for each size of batch, and replayed. The cache's addresses never change, so
that its memory can be lent to training between two rollouts without losing the graphs that point into it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.kernels.device_memory import DeviceMemory
from whet.rollout.engine import KEPT_CACHE
from whet.rollout.engines.native.paged import LOOKAHEAD, How, PagedRunner


class GraphRunner(PagedRunner):
    """The same model and cache, replayed."""

    def __init__(
        self,
        model: PreTrainedModel,
        max_num_seqs: int,
        end_ids: frozenset[int],
        max_model_len: int | None = None,
        memory_share: float = 0.6,
        eager: bool = False,
    ) -> None:
        super().__init__(model, max_num_seqs, end_ids, max_model_len)
        self._eager, self._memory_share = eager, memory_share
        self._total = torch.cuda.get_device_properties(self.device).total_memory
        self._memory: DeviceMemory | None = None
        self._graphs: dict[tuple[int, How], torch.cuda.CUDAGraph] = {}
        self._pool_handle: Any = None  # torch's handle of the memory that the graphs share

    def _window(self, B: int, how: How) -> None:
        if self._eager:
            return super()._window(B, how)
        graph = self._graphs.get((B, how)) or self._capture(B, how)
        for _ in range(LOOKAHEAD):
            graph.replay()
        return None

    def _capture(self, B: int, how: How) -> torch.cuda.CUDAGraph:
        self._pool_handle = self._pool_handle or torch.cuda.graph_pool_handle()
        state = self._state.clone()
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels are compiled, and what libraries set up lazily is set up
            self._one_token(B, how)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool_handle):
            self._one_token(B, how)
        self._graphs[B, how] = graph
        self._state.copy_(state)
        return graph

    def prefill(self, requests: list[Any]) -> None:
        """Take the cache's memory back where it was lent, then as ever."""
        if self._memory is not None and not self._memory.mapped:
            self._memory.map()
        super().prefill(requests)

    def release(self) -> None:
        """Lend the cache's memory to others where it takes much of the device; the addresses stay."""
        super().release()
        if self._memory is not None and self._memory.mapped and self._cache.nbytes > KEPT_CACHE * self._total:
            torch.cuda.synchronize(self.device)
            self._memory.unmap()

    def _new_cache(self, pages: int) -> Tensor:
        self._graphs.clear()  # they hold addresses of a cache that is no more
        self._pool_handle = None
        shape = self._cache_shape(pages)
        self._cache = torch.empty(0)
        if self._memory is not None:
            torch.cuda.synchronize(self.device)
            self._memory.close()
        self._memory = DeviceMemory(self.device, pages * self._page_bytes())
        self._memory.map()
        return self._memory.tensor(shape, self.model.dtype)

    def _most_pages(self) -> int:
        """Pages in this share of the device's memory, beside what is in use now."""
        free = self._memory_share * self._total - torch.cuda.memory_allocated(self.device)
        return max(1, int(free // self._page_bytes()))

    def _page_bytes(self) -> int:
        elements = torch.Size(self._cache_shape(1)).numel()
        return elements * self.model.dtype.itemsize
