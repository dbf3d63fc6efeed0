"""SGLang over its native HTTP API: token ids in and out, weights by files, memory given back between rollouts.

Every answer of the server carries the name of the weights that wrote it. whet gives each version a name that no other
run and no fresh server has, so a server that restarted, missed an update or was updated by somebody else is noticed
with the first answer, and its samples are never used.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.modality import placeholder_ids
from whet.rollout.engine import SamplingParams, Weights
from whet.rollout.engines.server.client import KEY, Client, HttpError
from whet.rollout.engines.server.engine import NEVER, ServerEngine, Written
from whet.rollout.engines.sglang.pictures import Pictures
from whet.rollout.engines.sglang.spec import CAPABILITIES
from whet.rollout.engines.sglang.weight_files import WeightFiles
from whet.types import FinishReason, Prompt

_CACHE = {"tags": ["kv_cache"]}  # the weights stay: a rollout may follow without an update between
_ABORT_SECONDS = 5.0


class SGLangEngine(ServerEngine):
    """A server that was started with `python -m sglang.launch_server`."""

    name = "sglang"
    capabilities = CAPABILITIES

    def __init__(
        self,
        client: Client,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        config: PretrainedConfig,
        max_num_seqs: int = 64,
        folder: Path | None = None,
        dtype: torch.dtype | None = None,
        sleeps: bool = False,
    ) -> None:
        """`folder` is where whet leaves weights and the server reads them; `sleeps` frees the cache in `release`."""
        super().__init__(client, tokenizer, end_ids, max_num_seqs)
        self._files = WeightFiles(folder, config, dtype)
        self._pictures = Pictures(config, tokenizer, kept=max_num_seqs)
        self.never = tuple(placeholder_ids(config))
        self._run = uuid.uuid4().hex[:12]
        self._sleeps, self._asleep = sleeps, False
        self._loaded: str | None = None  # the server's name for the weights it should have
        self._waking = asyncio.Lock()

    def load_weights(self, weights: Weights, version: int) -> None:
        """Write the weights to files and have the server read them; requests that it is serving end first."""
        folder = self._files.write(weights, version)
        self._loaded = None  # until the server says otherwise: an update that failed half-way leaves nobody knows what
        label = f"whet-{self._run}-{version}"
        self.run(self._update(folder, label))
        self._loaded, self.version = label, version
        self._files.keep_only(folder)  # not less: an update that fails makes the server go back to these

    def release(self) -> None:
        """Have the server give back its cache's memory, where that was asked for, unless it is writing something."""
        if self._sleeps and not self._asleep and self.idle:
            self.run(self.client.post("/release_memory_occupation", _CACHE))
            self._asleep = True

    def close(self) -> None:
        """Leave the server awake and without our files."""
        if self._asleep:
            with contextlib.suppress(UserError):
                self.run(self._wake())
            self._asleep = False
        super().close()
        self._files.close()

    async def ready(self) -> None:
        """Wake the server and see that it has the weights of `version`."""
        if self._loaded is None:
            raise UserError(
                f"{KEY}={self.client.address}: the server has no weights of this run; call load_weights first"
            )
        await self._wake()
        self._compare(await served_version(self.client), self._loaded)

    def check(self, prompt: Prompt) -> None:
        """Check as for any server; images must be ones that SGLang reads as the learner does."""
        super().check(prompt)
        self._pictures.check(prompt)

    async def write(self, prompt: Prompt, params: SamplingParams, seed: int) -> Written:
        """One response by /generate."""
        loaded, request_id = self._loaded, uuid.uuid4().hex
        body: dict[str, Any] = {
            "rid": request_id,
            "input_ids": self._pictures.ids(prompt),
            "sampling_params": sampling_params(params, self.end_ids, seed, self.never),
            "return_logprob": True,
        }
        if files := self._pictures.files(prompt):
            body["image_data"] = files
        try:
            answer = await self.client.post("/generate", body)
        except asyncio.CancelledError:
            await asyncio.shield(self._abort(request_id))
            raise
        meta = answer["meta_info"]
        self._compare(meta.get("weight_version"), loaded)
        if meta["prompt_tokens"] != len(prompt.ids):
            raise UserError(
                f"{prompt.uid}: the server read {meta['prompt_tokens']} tokens where the learner has "
                f"{len(prompt.ids)}: it gives images another size. Its processor must be the one of "
                "worker.actor.model.model_path, and data.min_pixels and data.max_pixels within its limits"
            )
        return self._written(meta)

    def _written(self, meta: dict[str, Any]) -> Written:
        reason = meta["finish_reason"]
        if reason["type"] == "abort":
            why = reason.get("message") or "no reason given"
            raise UserError(f"{KEY}={self.client.address}: the server gave up a response ({why})")
        tokens = meta["output_token_logprobs"]  # [log-prob, token id, text or null] of each token, ends included
        finish: FinishReason = "length" if reason["type"] == "length" else "stop"
        return Written([token[1] for token in tokens], [token[0] for token in tokens], finish)

    async def _update(self, folder: Path, label: str) -> None:
        await self._wake()
        body = {"model_path": str(folder), "weight_version": label, "flush_cache": True}
        try:
            answer = await self.client.post("/update_weights_from_disk", body)
        except HttpError as error:
            answer = {"success": False, "message": error.message}
        if not answer["success"]:
            raise UserError(
                f"{KEY}={self.client.address}: the server did not take the weights in {folder} "
                f"({answer['message']}); it must serve the model of worker.actor.model.model_path and read "
                "worker.rollout.server_folder"
            )
        self._compare(await served_version(self.client), label)

    async def _wake(self) -> None:
        async with self._waking:
            if self._asleep:
                await self.client.post("/resume_memory_occupation", _CACHE)
                self._asleep = False

    async def _abort(self, request_id: str) -> None:
        """A courtesy: the closed connection says the same, to servers that look."""
        with contextlib.suppress(UserError, TimeoutError):
            async with asyncio.timeout(_ABORT_SECONDS):
                await self.client.post("/abort_request", {"rid": request_id})

    def _compare(self, served: str | None, expected: str | None) -> None:
        if served != expected:
            raise UserError(
                f"{KEY}={self.client.address}: the server has weights {served!r} instead of {expected!r}: it "
                "restarted, or somebody else updated it. Nothing it wrote is used; start the run again, which goes on "
                "from its last checkpoint and gives the server its weights"
            )


async def reports_version(client: Client) -> None:
    """Raise a `UserError` unless it is an SGLang server that names its weights."""
    if await served_version(client) is None:
        raise UserError(
            f"{KEY}={client.address}: this SGLang does not say which weights it has (weight_version in /model_info); "
            "use a newer one"
        )


async def served_version(client: Client) -> str | None:
    """The server's name for its weights; UserError where it is no SGLang server."""
    for path in ("/model_info", "/get_model_info"):  # the second is the older name
        try:
            info = await client.get(path)
        except HttpError as error:
            if error.status == 404:
                continue
            raise
        if isinstance(info, dict) and "model_path" in info:
            return info.get("weight_version")
        break
    raise UserError(f"{KEY}={client.address}: no SGLang server answers there; worker.rollout.name says sglang")


def sampling_params(
    params: SamplingParams, end_ids: frozenset[int], seed: int, never: tuple[int, ...] = ()
) -> dict[str, Any]:
    """The parameters as SGLang names them. Its seeds hold with --enable-deterministic-inference only."""
    return {
        "max_new_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "stop": list(params.stop),
        "stop_token_ids": [] if params.ignore_eos else sorted(end_ids),
        "ignore_eos": params.ignore_eos,
        "skip_special_tokens": False,  # a stop string may spell one
        "no_stop_trim": True,
        "sampling_seed": seed,
    } | ({"logit_bias": {str(token): NEVER for token in never}} if never else {})
