"""The native engine behind the Engine protocol: called in batches by the trainer, one by one by agents and servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.fused import decoder_of, has_kernels
from whet.rollout.engine import Piece, Progress, SamplingParams, Start, Weights, ids_of
from whet.rollout.engines.native.loop import StepLoop
from whet.rollout.engines.native.runner import ModelRunner
from whet.rollout.engines.native.sequence import Request
from whet.rollout.engines.native.spec import CAPABILITIES
from whet.rollout.spec import Capabilities
from whet.types import Sample

if TYPE_CHECKING:
    from whet.model.fp8 import Fp8Weights
    from whet.rollout.engines.native.runner_protocol import Runner


class Occupancy(NamedTuple):
    """Use of the engine's slots and pages."""

    running: int  # sequences in slots
    waiting: int
    pages_used: int
    pages: int  # pages that the cache has now; 0 for a cache without pages
    preemptions: int  # since the engine was opened


class NativeEngine(StepLoop):
    """Continuous batching on the learner's weights. Requests join and leave between any two tokens.

    `generate` steps in the caller's thread, `sample` and `stream` start a thread that steps while anything is
    unfinished. All may be in use at once.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 8192,
        max_model_len: int | None = None,
        memory_share: float = 0.6,
        eager: bool = False,
        speculate: bool = False,
        record_routing: bool = False,
        fp8: bool = False,
        fp8_cache: bool = False,
    ) -> None:
        """`max_model_len` and `memory_share` size the cache of a CUDA device, where `eager` does without graphs.

        `speculate` guesses tokens of the last few sequences there, and draws the same samples. `record_routing` gives
        samples the experts that their tokens were sent to. `fp8` computes with weights in 8 bits, rounded anew whenever
        they are loaded; `fp8_cache` keeps keys and values in 8 bits, in pages.
        """
        sizes = (max_num_seqs, end_ids, max_model_len, memory_share)
        speculate = speculate and not record_routing  # guesses are checked in passes that record nothing
        runner = _runner_for(model, *sizes, eager, speculate, record_routing, fp8_cache)
        super().__init__(runner, tokenizer, end_ids, max_num_seqs, max_num_batched_tokens)
        self._fp8: Fp8Weights | None = None
        if fp8:
            from whet.model.fp8 import Fp8Mode, Fp8Weights

            self._fp8 = Fp8Weights(model)
            self._fp8.refresh()
            self._mode = Fp8Mode(self._fp8)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this engine with this model on this device."""
        return CAPABILITIES(prefix_reuse=self._runner.keeps)

    def occupancy(self) -> Occupancy:
        """Return the load of the engine; a snapshot that may be out of date when it is read."""
        used, pages = self._runner.occupancy()
        scheduler = self._scheduler
        return Occupancy(len(scheduler.running), len(scheduler.waiting), used, pages, self.preemptions)

    @property
    def failure(self) -> str | None:
        """None: it runs in this process, and a step that failed ends its requests only."""
        return None

    def generate(
        self,
        prompts: Seq[Start],
        params: SamplingParams,
        sample_ids: Seq[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        requests: list[Request] = []
        try:
            for prompt, sample_id in zip(prompts, ids_of(prompts, params, sample_ids), strict=True):
                requests.append(self.submit(prompt, params, sample_id))
            while unfinished := sum(r.unfinished for r in requests):
                self.step()
                ended = unfinished - sum(r.unfinished for r in requests)
                if progress is not None and ended:
                    progress(ended)
        except BaseException:
            for request in requests:
                self.withdraw(request)
            raise
        for request in requests:
            request.raise_error()
        return [s for r in requests for s in r.samples(self.version)]

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start; they join what is being decoded, and leave it if the call is cancelled."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():  # it is when the caller was cancelled
                done.set_result(None)

        def finished(request: Request) -> None:
            if request.unfinished == 0:
                with contextlib.suppress(RuntimeError):  # the caller's loop has closed: nobody waits any more
                    loop.call_soon_threadsafe(wake)

        request = self.request(prompt, params, sample_id, finished)
        self.submit_together(request, loop.call_soon)  # with the calls that begin in the same turn of the loop
        try:
            await done
        finally:
            if request.unfinished:  # cancelled
                self.withdraw(request)
        request.raise_error()
        return request.samples(self.version)

    async def stream(
        self,
        prompts: Seq[Start],
        params: SamplingParams,
        sample_ids: Seq[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each start as they are written, more at a time to a slow reader."""
        from whet.rollout.engines.native.streaming import Growth

        grown = Growth(asyncio.get_running_loop())
        requests = grown.ask(self, prompts, params, ids_of(prompts, params, sample_ids))
        try:
            async for piece in grown.pieces():
                yield piece
        finally:
            self.leave(requests)

    def load_weights(self, weights: Weights, version: int) -> None:
        """Note the version: the model is the learner's own, so its weights are here already.

        What is being written goes on with them behind the keys and values of the old ones; kept samples are dropped.
        """
        with self.pause():
            self._append(self._runner.settle())  # drawn with the old weights
            self._remove_finished()
            self._forget()
            self.version = version
            if self._fp8 is not None:
                self._fp8.refresh()

    def release(self) -> None:
        """Give the cache's memory back unless something is being decoded; the next step takes what it needs."""
        with self.pause():
            self._forget()
            self._join_and_leave()
            if not self._scheduler.running:
                for sequence in self._scheduler.waiting:
                    self._runner.evict(sequence)
                self._runner.release()

    def close(self) -> None:
        """Nothing was started."""


def _runner_for(
    model: PreTrainedModel,
    max_num_seqs: int,
    end_ids: frozenset[int],
    max_model_len: int | None,
    memory_share: float,
    eager: bool,
    speculate: bool,
    record_routing: bool,
    fp8_cache: bool,
) -> Runner:
    """Pages and captured graphs where the device has them, slots elsewhere."""
    if fp8_cache and not has_kernels(model):
        raise UserError("worker.rollout.kv_cache_dtype=fp8 needs a GPU and heads of 16 to 256; set it to null")
    cache_dtype = torch.float8_e4m3fn if fp8_cache else None
    if not has_kernels(model):
        return ModelRunner(model, record_routing)
    if model.device.type != "cuda":  # triton's interpreter
        from whet.rollout.engines.native.paged import PagedRunner
        from whet.rollout.engines.native.storage import PageStorage

        storage = PageStorage(model, cache_dtype)
        return PagedRunner(model, max_num_seqs, end_ids, max_model_len, storage, speculate, record_routing)
    from whet.model.routing import mixtures
    from whet.rollout.engines.native.graph import GraphRunner  # imports triton, which not every machine has

    if decoder_of(model) is None and mixtures(model):
        eager = True  # a mixture's own modules may ask the host which experts have tokens: no graph can hold that
    sizes = (max_num_seqs, end_ids, max_model_len, memory_share)
    return GraphRunner(model, *sizes, eager, speculate, record_routing, cache_dtype)
