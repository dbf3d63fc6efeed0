"""vLLM behind the Engine protocol: token ids in, token ids and log-probs out, weights from the learner.

Every sample is a request of its own with its own seed; vLLM's prefix cache computes their shared prompt once. Several
vLLMs may share the prompts: its scheduler is one Python thread that looks at every sequence for every token.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.modality import placeholder_ids
from whet.rollout.engine import Begun, Piece, Progress, SamplingParams, Start, Weights, begin, ids_of
from whet.rollout.engines.native.sequence import Request
from whet.rollout.engines.native.sequence import Sequence as Response
from whet.rollout.engines.vllm.media import MediaWriter
from whet.rollout.engines.vllm.replicas import Replicas
from whet.rollout.engines.vllm.settings import Settings, write_folder
from whet.rollout.engines.vllm.spec import IN_PROCESS
from whet.rollout.engines.vllm.streaming import Reply, Stream, append
from whet.rollout.spec import Capabilities
from whet.rollout.stop import StopCheck
from whet.rollout.uniforms import stream_keys
from whet.rollout.whole import Gate, refuse_params, stream_whole
from whet.types import Prompt, Sample

_NEVER = -1e9  # added to a logit, it leaves a probability of zero


class VLLMEngine:
    """Samples with a vLLM that is started here, and that has the learner's weights or none."""

    def __init__(
        self,
        settings: Settings,
        config: PretrainedConfig,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        log: Path | None = None,
    ) -> None:
        """`config` is the model's; `log` is the file for what vLLM prints."""
        self.version = -1
        self._loaded: int | None = None
        self._source: Weights | None = None  # where the loaded version came from
        self._weights: Weights | None = None  # the same, while vLLM sleeps without a copy
        self._waking = threading.Lock()
        self._gate = Gate()
        self._open: dict[str, _Request] = {}  # samples that are being written, by their keys
        self._settings, self._end_ids = settings, sorted(end_ids)
        self._vocabulary = config.get_text_config().vocab_size
        self._media = MediaWriter(config, settings.dtype)
        self._never = {str(token): _NEVER for token in placeholder_ids(config)}
        self._stop = StopCheck(tokenizer, end_ids)
        self._keys = itertools.count()
        settings.check()
        self._folder = tempfile.TemporaryDirectory(prefix="whet-vllm-")
        try:
            write_folder(Path(self._folder.name), config, tokenizer, settings.processor_from)
            self._vllm = Replicas(settings, settings.arguments(Path(self._folder.name), config), log)
        except BaseException:
            self._folder.cleanup()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this engine."""
        return IN_PROCESS

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        with self._gate.enter():
            self._wake()
            requests = self._submit(prompts, params, ids_of(prompts, params, sample_ids))
            try:
                for future in as_completed([request.future for request in requests]):
                    future.result()  # one that failed ends all of them
                    if progress is not None:
                        progress(1)
            except BaseException:
                self._drop(requests)
                raise
            return [self._sample(request) for request in requests]

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start; they join what is being decoded, and leave it if the call is cancelled."""
        async with self._gate.enter_async():
            if self._weights is not None:
                await asyncio.to_thread(self._wake)
            requests = self._submit([prompt], params, [sample_id])
            try:
                await asyncio.gather(*(asyncio.wrap_future(request.future) for request in requests))
            except BaseException:
                self._drop(requests)
                raise
            return [self._sample(request) for request in requests]

    async def stream(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each start as they are written, more at a time to a slow reader.

        Parts are sent from vLLM's process one by one, so that whole samples are the cheaper ones.
        """
        if not parts:
            async for piece in stream_whole(self, prompts, params, sample_ids):
                yield piece
            return
        async with self._gate.enter_async():
            if self._weights is not None:
                await asyncio.to_thread(self._wake)
            stream = Stream([begin(prompt).prefix for prompt in prompts], params, self._stop)
            requests = self._submit(prompts, params, ids_of(prompts, params, sample_ids), stream.add)
            try:
                for at, request in enumerate(requests):
                    request.future.add_done_callback(partial(stream.end, at))
                async for piece in stream.pieces():
                    yield piece
            finally:
                self._drop(requests)

    def pause(self) -> AbstractContextManager[None]:
        """Keep any token from being drawn inside the context; what is being written is finished first."""
        return self._gate.pause()

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """End samples, all or those of some ids; who waits gets them without new tokens, and a stream with its own."""
        writing = list(self._open.values())
        keys = [each.key for each in writing if sample_ids is None or each.sample_id in sample_ids]
        if keys:
            self._vllm.abort(keys, self._loaded)

    def load_weights(self, weights: Weights, version: int) -> None:
        """Sample with these weights from now on; every worker takes them, and they are checked there and here."""
        if self._vllm.pending:
            raise RuntimeError(f"{self._vllm.pending} samples are being written with the weights to be replaced")
        self._loaded = self._weights = None  # should anything fail now, nothing is sampled
        self.version = version
        self._vllm.load(weights, version)
        self._loaded = version
        self._source = weights

    def release(self) -> None:
        """Let vLLM sleep; it wakes for the next request. On a CPU it has nothing to give back.

        Weights that the learner has anyway are thrown away meanwhile: to copy them to host memory and back takes
        longer than to take them again.
        """
        if self._vllm.pending or self._loaded is None:
            return
        if self._vllm.sleep():
            self._weights = self._source

    def close(self) -> None:
        """End vLLM and every process it started."""
        self._vllm.close()
        self._folder.cleanup()

    @property
    def failure(self) -> str | None:
        """Return how vLLM ended, if it did by itself."""
        return self._vllm.gone

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The first process that runs vLLM, where it is another."""
        return self._vllm.processes[0]

    @property
    def last_load(self) -> dict[str, Any]:
        """Report of the last weights loaded: bytes, tensors, checksum, and transport."""
        return self._vllm.last_load

    def _wake(self) -> None:
        """Give a vLLM that threw its weights away the same ones again."""
        with self._waking:
            if self._weights is not None and self._loaded is not None:
                weights, version = self._weights, self._loaded
                self._loaded = self._weights = None
                self._vllm.load(weights, version, again=True)
                self._loaded = version

    def _submit(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        ids: Sequence[int],
        hear: Callable[[int, Reply], None] | None = None,
    ) -> list[_Request]:
        """Queue n samples of each start; `hear` is told of parts of them, by their place in the list."""
        if self._loaded is None or self._loaded != self.version:
            raise RuntimeError(f"vLLM holds version {self._loaded} of the weights, not {self.version}: load them first")
        refuse_params(params, "vllm", stop_ids=True)
        begun = [begin(prompt) for prompt in prompts]
        for each in begun:
            self._check(each.prefix, params)
        shown = {which: media for which, b in enumerate(begun) if (media := self._media.write(b.prefix)) is not None}
        samples = [(b, first, i) for b, first in zip(begun, ids, strict=True) for i in range(params.n)]
        seeds = [int(stream_keys(params.seed, torch.tensor([first + i]), b.written)) for b, first, i in samples]
        keys = [str(next(self._keys)) for _ in seeds]
        places = {key: at for at, key in enumerate(keys)}
        futures = self._vllm.submit(
            [b.prefix.ids for b in begun],
            [(key, at // params.n, seed & (2**63 - 1)) for at, (key, seed) in enumerate(zip(keys, seeds))],  # none < 0
            self._options(params),
            self._loaded,
            shown,
            None if hear is None else lambda key, part: hear(places[key], part),
        )
        requests = [
            _Request(key, b, params, i, first + i, future) for key, (b, first, i), future in zip(keys, samples, futures)
        ]
        for request in requests:
            self._open[request.key] = request
            request.future.add_done_callback(partial(self._ended, request.key))
        return requests

    def _ended(self, key: str, _future: Future[Reply]) -> None:
        self._open.pop(key, None)

    def _check(self, prompt: Prompt, params: SamplingParams) -> None:
        if not prompt.ids or min(prompt.ids) < 0 or max(prompt.ids) >= self._vocabulary:
            last = self._vocabulary - 1
            raise UserError(f"{prompt.uid}: a prompt is one or more token ids from 0 to {last}; is this its tokenizer?")
        if len(prompt.ids) + params.max_tokens > self._settings.max_model_len:
            raise UserError(
                f"{prompt.uid}: {len(prompt.ids)} tokens and a response of {params.max_tokens} are more than "
                f"worker.rollout.max_model_len={self._settings.max_model_len}"
            )

    def _options(self, params: SamplingParams) -> dict[str, Any]:
        """vLLM's sampling parameters. Its own end tokens are switched off: whet's are all there are."""
        return {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": max(params.top_k, 0),
            "min_p": params.min_p,
            "max_tokens": params.max_tokens,
            "stop": list(params.stop),
            "stop_token_ids": [*params.stop_ids, *([] if params.ignore_eos else self._end_ids)],
            "ignore_eos": True,
            "logprobs": 0,  # the sampled token's alone
            "flat_logprobs": True,
            "detokenize": bool(params.stop),
            "skip_special_tokens": False,
        } | ({"logit_bias": self._never} if self._never else {})

    def _drop(self, requests: list[_Request]) -> None:
        """Let requests go that nobody waits for any more."""
        left = [request.key for request in requests if not request.future.done()]
        if left:
            self._vllm.abort(left)
            for key in left:
                self._open.pop(key, None)

    def _sample(self, request: _Request) -> Sample:
        reply = request.future.result()
        asked = Request(request.begun.prefix, request.params, begun=request.begun)
        asked.sequences = [Response(asked, request.index, 0)]
        append(asked.sequences[0], reply, self._stop)
        return asked.samples(reply["version"])[0]


@dataclass(frozen=True, slots=True)
class _Request:
    """One sample on its way."""

    key: str
    begun: Begun
    params: SamplingParams
    index: int
    sample_id: int
    future: Future[Reply]
