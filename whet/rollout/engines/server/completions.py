"""OpenAI's /v1/completions with token ids, for servers that return the ids they wrote.

The API has no way to give a server weights. These engines therefore sample with what the server was started with and
nothing else: they validate and they generate, and refuse to follow training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import PreTrainedTokenizerBase

from whet.errors import UserError
from whet.rollout.engine import SamplingParams, Weights
from whet.rollout.engines.server.client import KEY, Client
from whet.rollout.engines.server.engine import NEVER, ServerEngine, Written
from whet.types import FinishReason, Prompt

_FINISH: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


class CompletionsEngine(ServerEngine):
    """A server whose weights are its own. A subclass has a name, and says how the server is asked for token ids."""

    token_ids: ClassVar[Mapping[str, Any]] = {}  # fields of the request that make the server return the ids it wrote

    def __init__(
        self, client: Client, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int], max_num_seqs: int = 64
    ) -> None:
        super().__init__(client, tokenizer, end_ids, max_num_seqs)
        self._model: str | None = None  # what the server called its model when it was first asked

    def load_weights(self, weights: Weights, version: int) -> None:
        """Version 0 is what the server was started with; later ones cannot reach it."""
        if version != 0:
            raise UserError(
                f"worker.rollout.name={self.name}: this server cannot be given new weights, so it cannot sample "
                f"version {version} of the policy; train with native, vllm or sglang, or start the server with the "
                "folder actor/huggingface of a checkpoint, name that as worker.actor.model.model_path and validate "
                "with trainer.val_only=true"
            )

    async def ready(self) -> None:
        """See that the server still serves the model it served first."""
        model = await served_model(self.client)
        self._model = self._model or model
        if model != self._model:
            raise UserError(
                f"{KEY}={self.client.address}: the server now serves {model!r}, at first it was {self._model!r}; "
                "start the run again if that is right"
            )

    async def write(self, prompt: Prompt, params: SamplingParams, seed: int) -> Written:
        """One response by /v1/completions; a closed connection ends it."""
        body = {"model": self._model, "prompt": prompt.ids, **completion_params(params, self.end_ids, seed, self.never)}
        answer = await self.client.post("/v1/completions", body | dict(self.token_ids))
        (choice,) = answer["choices"]
        if choice.get("token_ids") is None or not choice.get("logprobs"):
            raise UserError(
                f"{KEY}={self.client.address}: the server returns no token ids or no log-probs; "
                f"worker.rollout.name={self.name} needs both, as newer versions of TensorRT-LLM and vLLM give them"
            )
        finish = _FINISH.get(choice["finish_reason"])
        if finish is None:
            raise UserError(f"{KEY}={self.client.address}: the server gave up a response ({choice['finish_reason']})")
        return Written(choice["token_ids"], choice["logprobs"]["token_logprobs"], finish)


async def served_model(client: Client) -> str:
    """The server's name for its model."""
    answer = await client.get("/v1/models")
    if not isinstance(answer, dict) or not answer.get("data"):
        raise UserError(f"{KEY}={client.address}: the server lists no model at /v1/models")
    return answer["data"][0]["id"]


def completion_params(
    params: SamplingParams, end_ids: frozenset[int], seed: int, never: tuple[int, ...] = ()
) -> dict[str, Any]:
    """The parameters as these servers name them."""
    greedy = params.temperature == 0
    return {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": 1 if greedy else max(params.top_k, 0),  # 0 keeps every token
        "min_p": params.min_p,
        "stop": list(params.stop),
        "stop_token_ids": [] if params.ignore_eos else sorted(end_ids),
        "include_stop_str_in_output": True,
        "ignore_eos": params.ignore_eos,
        "skip_special_tokens": False,
        "seed": seed,
        "logprobs": 1,
        "n": 1,
    } | ({"logit_bias": {str(token): NEVER for token in never}} if never else {})
