"""vLLM behind the Engine protocol: token ids in, token ids and log-probs out, weights from the learner.

Every sample is a request of its own with its own seed; vLLM's prefix cache computes their shared prompt once.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.rollout.engine import Engine, Progress, SamplingParams, Weights
from whet.rollout.native.sequence import Request
from whet.rollout.native.sequence import Sequence as Response
from whet.rollout.native.stop import StopCheck
from whet.rollout.server.client import Client
from whet.rollout.uniforms import stream_keys
from whet.rollout.vllm.channel import Channel, InlineChannel, ProcessChannel
from whet.rollout.vllm.sender import WeightSender
from whet.rollout.vllm.server import OwnServerEngine, VLLMServerEngine
from whet.rollout.vllm.settings import Settings, write_folder
from whet.types import Prompt, Sample

Reply = dict[str, Any]


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
        self._settings, self._end_ids = settings, sorted(end_ids)
        self._vocabulary = config.get_text_config().vocab_size
        self._stop = StopCheck(tokenizer, end_ids)
        self._keys = itertools.count()
        settings.check()
        self._folder = tempfile.TemporaryDirectory(prefix="whet-vllm-")
        try:
            write_folder(Path(self._folder.name), config, tokenizer)
            arguments = settings.arguments(Path(self._folder.name), config)
            self._channel: Channel = (
                InlineChannel(settings, arguments)
                if settings.mode == "inline"
                else ProcessChannel(settings, arguments, log)
            )
        except BaseException:
            self._folder.cleanup()
            raise

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """n samples for each prompt, in the order of the prompts."""
        ids = range(0, len(prompts) * params.n, params.n) if sample_ids is None else sample_ids
        requests: list[_Request] = []
        try:
            for prompt, first in zip(prompts, ids, strict=True):
                requests += self._submit(prompt, params, first)
            unfinished = {request.future for request in requests}
            while unfinished:
                ended, unfinished = wait(unfinished, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()  # one that failed ends all of them
                if progress is not None:
                    progress(len(ended))
        except BaseException:
            self._abort(requests)
            raise
        return [self._sample(request) for request in requests]

    async def sample(self, prompt: Prompt, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """n samples of one prompt; joins whatever is being decoded, leaves when cancelled."""
        requests = self._submit(prompt, params, sample_id)
        try:
            await asyncio.gather(*(asyncio.wrap_future(request.future) for request in requests))
        except BaseException:
            self._abort(requests)
            raise
        return [self._sample(request) for request in requests]

    def load(self, weights: Weights, version: int) -> None:
        """Sample with these weights from now on; they stream to every worker and are checked there and here."""
        if self._channel.pending:
            raise RuntimeError(f"{self._channel.pending} samples are being written with the weights to be replaced")
        self._loaded = None  # should anything fail now, nothing is sampled
        self.version = version
        with WeightSender(weights, version, self._settings.tensor_parallel_size) as sender:
            try:
                received = self._channel.load(sender)
            except UserError:
                if sender.error is not None:
                    raise sender.error from None
                raise
            sender.check(received)
        self._loaded = version

    def release(self) -> None:
        """Let vLLM sleep; it wakes for the next request. On a CPU it has nothing to give back."""
        if not self._channel.pending:
            self._channel.sleep()

    def close(self) -> None:
        """End vLLM and every process it started."""
        self._channel.close()
        self._folder.cleanup()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs vLLM, where it is another."""
        assert isinstance(self._channel, ProcessChannel), "vLLM runs in this process"
        return self._channel.process

    def _submit(self, prompt: Prompt, params: SamplingParams, first: int) -> list[_Request]:
        if self._loaded is None or self._loaded != self.version:
            raise RuntimeError(f"vLLM holds version {self._loaded} of the weights, not {self.version}: load them first")
        if not prompt.ids or min(prompt.ids) < 0 or max(prompt.ids) >= self._vocabulary:
            last = self._vocabulary - 1
            raise UserError(f"{prompt.uid}: a prompt is one or more token ids from 0 to {last}; is this its tokenizer?")
        if prompt.media is not None and (prompt.media.images or prompt.media.videos):
            raise UserError(f"{prompt.uid}: worker.rollout.name=vllm does not take images or videos yet")
        if len(prompt.ids) + params.max_tokens > self._settings.max_model_len:
            raise UserError(
                f"{prompt.uid}: {len(prompt.ids)} tokens and a response of {params.max_tokens} are more than "
                f"worker.rollout.max_model_len={self._settings.max_model_len}"
            )
        options = self._options(params)
        seeds = stream_keys(params.seed, torch.arange(params.n) + first).tolist()
        requests = []
        for index, seed in enumerate(seeds):
            key = str(next(self._keys))
            each = options | {"seed": seed & (2**63 - 1)}  # vLLM takes none below 0
            requests.append(
                _Request(key, prompt, params, index, self._channel.submit(key, prompt.ids, each, self._loaded))
            )
        return requests

    def _options(self, params: SamplingParams) -> dict[str, Any]:
        """vLLM's sampling parameters. Its own end tokens are switched off: whet's are all there are."""
        return {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": max(params.top_k, 0),
            "min_p": params.min_p,
            "max_tokens": params.max_tokens,
            "stop": list(params.stop),
            "stop_token_ids": [] if params.ignore_eos else self._end_ids,
            "ignore_eos": True,
            "logprobs": 0,  # the sampled token's alone
            "detokenize": bool(params.stop),
            "skip_special_tokens": False,
        }

    def _abort(self, requests: list[_Request]) -> None:
        left = [request.key for request in requests if not request.future.done()]
        if left:
            self._channel.abort(left)

    def _sample(self, request: _Request) -> Sample:
        reply = request.future.result()
        if "error" in reply:
            raise UserError(f"{request.prompt.uid}: vLLM refused the prompt: {reply['error']}")
        ids, log_probs, finish = reply["ids"], reply["log_probs"], reply["finish"]
        if request.params.stop:  # vLLM spells tokens in its own way: whet's check has the last word on where it ends
            taken, found = self._stop(Response(Request(request.prompt, request.params), request.index, 0), ids)
            ids, log_probs, finish = ids[:taken], log_probs[:taken], found or finish
        mask = [1] * len(ids)
        return Sample(request.prompt, ids, mask, log_probs, finish, index=request.index, version=reply["version"])


@dataclass(frozen=True, slots=True)
class _Request:
    """One sample on its way."""

    key: str
    prompt: Prompt
    params: SamplingParams
    index: int
    future: Future[Reply]


def open_vllm(
    settings: Settings,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    end_ids: frozenset[int],
    client: Client | None = None,
    log: Path | None = None,
) -> Engine:
    """The engine of the mode that the settings name; `client` speaks to a server that is up already."""
    if settings.mode != "server":
        return VLLMEngine(settings, config, tokenizer, end_ids, log)
    if client is not None:
        return VLLMServerEngine(client, tokenizer, end_ids, settings.max_num_seqs)
    return OwnServerEngine(settings, config, tokenizer, end_ids, log)
