"""Base of engines behind HTTP: a bounded number of concurrent requests, and whet's own rule for the end of a sample."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from whet.errors import UserError
from whet.rollout.engine import Begun, Piece, Progress, SamplingParams, Start, Weights, begin, ids_of
from whet.rollout.engines.native.sequence import Request
from whet.rollout.engines.native.sequence import Sequence as Response
from whet.rollout.engines.server.background import BackgroundLoop
from whet.rollout.engines.server.client import KEY, Client
from whet.rollout.spec import Capabilities
from whet.rollout.stop import StopCheck
from whet.rollout.uniforms import stream_keys
from whet.rollout.whole import Gate, refuse_params, stream_whole
from whet.types import FinishReason, Prompt, Sample

NEVER = -100.0  # the least that servers add to a logit
_SEED_BITS = 31  # the widest seed that every server takes


@dataclass(frozen=True, slots=True)
class Written:
    """One response as a server gives it."""

    ids: list[int]
    log_probs: list[float]
    finish: FinishReason


class ServerEngine:
    """The Engine protocol over a server; a subclass knows its requests.

    Each sample is a request of its own with a seed from (seed, sample id), so a server whose seeds hold writes the
    same sample whatever else it serves. At most `max_num_seqs` requests wait for the server at a time.
    """

    name = "server"
    capabilities = Capabilities()
    never: tuple[int, ...] = ()  # tokens that must not be sampled: those that stand for images

    def __init__(
        self,
        client: Client,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int = 64,
    ) -> None:
        self.version = 0
        self.client, self.end_ids = client, end_ids
        self._stop = StopCheck(tokenizer, end_ids)
        self._background = BackgroundLoop()
        self._slots = asyncio.Semaphore(max_num_seqs)
        self._gate = Gate()
        self._writing: dict[asyncio.Task[Written], int] = {}  # the id of each sample; of the engine's own loop
        self._aborted: set[asyncio.Task[Written]] = set()

    @property
    def failure(self) -> str | None:
        """None: a server that is gone is noticed with the next request, and may come back."""
        return None

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        begun = [self._begin(prompt, params) for prompt in prompts]
        with self._gate.enter():
            self.run(self.ready())
            ids = ids_of(prompts, params, sample_ids)
            rows = [(b, i, first) for b, first in zip(begun, ids, strict=True) for i in range(params.n)]
            futures = [self._background.submit(self._sample(b, params, first, i)) for b, i, first in rows]
            self._wait_for(futures, progress)
        return [future.result() for future in futures]

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start; they join what the server decodes, and leave it if the call is cancelled."""
        begun = self._begin(prompt, params)

        async def all_samples() -> list[Sample]:
            await self.ready()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._sample(begun, params, sample_id, i)) for i in range(params.n)]
            return [task.result() for task in tasks]

        try:
            async with self._gate.enter_async():
                return await asyncio.wrap_future(self._background.submit(all_samples()))
        except* UserError as errors:
            failure = errors.exceptions[0]
        raise failure

    def stream(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield whole samples."""
        return stream_whole(self, prompts, params, sample_ids)

    def pause(self) -> AbstractContextManager[None]:
        """Keep any request from being sent inside the context; those that were sent are answered first."""
        return self._gate.pause()

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """Drop the requests of samples, all or those of some ids; who waits gets them without new tokens."""
        self.run(self._abort_samples(None if sample_ids is None else frozenset(sample_ids)))

    def check(self, prompt: Prompt) -> None:
        """UserError for a prompt that cannot be sent."""
        if not prompt.ids:
            raise UserError(f"{prompt.uid}: a prompt is one or more token ids")
        media = prompt.media
        if not self.capabilities.images and media is not None and (media.images or media.videos or media.inputs):
            raise UserError(
                f"{prompt.uid}: images and videos do not reach a server of kind {self.name}; "
                "worker.rollout.name=native, hf and sglang take them, and so does vllm with "
                "worker.rollout.mode=process or inline"
            )

    def load_weights(self, weights: Weights, version: int) -> None:
        """Sample with these weights from now on, and call them `version`."""
        raise NotImplementedError

    def release(self) -> None:
        """The server's memory is its own."""

    def close(self) -> None:
        """Drop the requests that still wait; the server goes on."""
        self._background.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine on the engine's own loop, from any other thread."""
        return self._background.run(work)

    @property
    def idle(self) -> bool:
        """True if no sample is in progress."""
        return self._gate.idle

    async def ready(self) -> None:
        """Raise unless the server is there with the weights that it should have."""
        raise NotImplementedError

    async def write(self, prompt: Prompt, params: SamplingParams, seed: int) -> Written:
        """One response of the server; cancelled, it tells the server to stop."""
        raise NotImplementedError

    def _begin(self, prompt: Start, params: SamplingParams) -> Begun:
        refuse_params(params, self.name)
        begun = begin(prompt)
        self.check(begun.prefix)
        return begun

    async def _sample(self, begun: Begun, params: SamplingParams, first_id: int, index: int) -> Sample:
        version = self.version
        key = int(stream_keys(params.seed, torch.tensor([first_id + index]), begun.written))
        write = asyncio.ensure_future(self._write(begun.prefix, params, key & (2**_SEED_BITS - 1)))
        self._writing[write] = first_id + index
        try:
            written = await write
        except asyncio.CancelledError:
            if write not in self._aborted:
                raise
            return begun.sample([], [], "abort", index, [(0, version)])
        finally:
            self._aborted.discard(write)
            del self._writing[write]
        return self._as_sample(begun, params, index, written, version)

    async def _write(self, prompt: Prompt, params: SamplingParams, seed: int) -> Written:
        async with self._slots:
            return await self.write(prompt, params, seed)

    async def _abort_samples(self, sample_ids: frozenset[int] | None) -> None:
        for write, sample_id in self._writing.items():
            if sample_ids is None or sample_id in sample_ids:
                self._aborted.add(write)
                write.cancel()

    def _as_sample(self, begun: Begun, params: SamplingParams, index: int, written: Written, version: int) -> Sample:
        """A server may look for ends in other places: whet's own check has the last word on where a response stops."""
        if len(written.ids) != len(written.log_probs):
            raise UserError(
                f"{KEY}={self.client.address}: {len(written.log_probs)} log-probs for {len(written.ids)} tokens; "
                f"is this the {self.name} server that worker.rollout.name says?"
            )
        taken, finish = self._stop(Response(Request(begun.prefix, params), index, 0), written.ids)
        ids, log_probs = written.ids[:taken], written.log_probs[:taken]
        return begun.sample(ids, log_probs, finish or written.finish, index, [(0, version)])

    def _wait_for(self, futures: list[Future[Sample]], progress: Progress | None) -> None:
        """Until all are done; the first failure, or an interrupt of this thread, cancels the others."""
        try:
            for future in as_completed(futures):
                future.result()
                if progress is not None:
                    progress(1)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
