"""Decoding on a CUDA device: a token is one replay of a captured graph.

Decoding a small model one kernel at a time is bound by the host that launches them. Here the forward pass, sampling and
bookkeeping of one token are captured once for each size of batch, and replayed; so are prefills of few tokens. The
cache's addresses never change, so that its memory can be lent to training between two rollouts without losing the
graphs that point into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from whet.model.fused import decoder_of, is_exact
from whet.rollout.engines.native.flight import LOOKAHEAD
from whet.rollout.engines.native.paged import PagedRunner
from whet.rollout.engines.native.reading import Places
from whet.rollout.engines.native.sequence import ChunkRow
from whet.rollout.engines.native.short_reading import ShortReading, size_for
from whet.rollout.engines.native.slots import How
from whet.rollout.engines.native.storage import DeviceStorage
from whet.rollout.engines.native.verifying import Verifier


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
        speculate: bool = False,
        record_routing: bool = False,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        storage = DeviceStorage(model, memory_share, cache_dtype)
        super().__init__(model, max_num_seqs, end_ids, max_model_len, storage, speculate, record_routing)
        self._eager = eager
        self._graphs: dict[tuple[int, How] | tuple[int, float] | int, torch.cuda.CUDAGraph] = {}
        self._readings: dict[int, ShortReading] = {}  # by their numbers of tokens
        self._pool_handle: Any = None  # torch's handle of the memory that the graphs share

    def _window(self, B: int, how: How) -> None:
        if self._eager:
            return super()._window(B, how)
        graph = self._graphs.get((B, how))
        if graph is None:
            state = self._state.clone()  # which a pass moves on
            graph = self._graphs[B, how] = self._capture(lambda: self._one_token(B, how))
            self._state.copy_(state)
        for _ in range(LOOKAHEAD):
            graph.replay()
        return None

    def _read_short(self, row: ChunkRow, places: Places) -> bool:
        """Replay a prefill of few tokens that have none before them."""
        plain = self._routes is None and not is_exact(self.model) and decoder_of(self.model) is not None
        size = size_for(row) if plain and not self._eager and not places.first_C.any() else None
        if size is None:
            return False
        if size not in self._readings:
            self._readings[size] = ShortReading(self, size)
        reading = self._readings[size]
        reading.fill(self, row, places.slots(row.lengths))
        if size not in self._graphs:
            self._graphs[size] = self._capture(lambda: reading.launch(self))
        self._graphs[size].replay()
        return True

    def pass_over_rows(self, verifier: Verifier, size: int, temperature: float) -> None:
        """Run a verifier's pass as a graph."""
        if self._eager:
            return super().pass_over_rows(verifier, size, temperature)
        key = (size, temperature)
        if key not in self._graphs:
            self._graphs[key] = self._capture(lambda: verifier.launch(self, size, temperature))
        self._graphs[key].replay()
        return None

    def _capture(self, launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
        self._pool_handle = self._pool_handle or torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream()
        # A stream of the engine's own passes its priority and its part of the device on to the graph.
        own = current != torch.cuda.default_stream(self.device)
        stream = current if own else torch.cuda.Stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):  # kernels are compiled, and what libraries set up lazily is set up
            launch()
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate memory meanwhile: a learner that updates while this engine samples.
        with torch.cuda.graph(graph, self._pool_handle, stream if own else None, "thread_local"):
            launch()
        return graph

    def _widen(self, longest: int) -> None:
        """Drop the graphs with the block table: they hold its address."""
        self._graphs.clear()
        self._pool_handle = None
        super()._widen(longest)
