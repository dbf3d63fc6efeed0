"""`worker.rollout.env=verifiers:NAME`: environments of the verifiers package (its v0 interface), with their rubrics.

NAME is what `verifiers.load_environment` takes, or `path.py:load_environment`; `worker.rollout.env_args` go to the
loader. An environment runs its own loop and asks a client for the policy's turns; that client waits for `step`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from typing import Any

from whet.chat.calls.registry import parser
from whet.chat.messages import Message, assistant_message
from whet.envs.loading import find_object
from whet.envs.packages import require
from whet.envs.protocol import Action, StepResult
from whet.errors import UserError
from whet.types import Prompt

COLUMN = "verifiers"  # of a row: an example of the environment's data set, as JSON
_LOCK = threading.Lock()  # environments are shared by samples, and made once


class VerifiersEnv:
    """One rollout: what the environment asks of the policy, turn by turn, and the reward of its rubric at the end."""

    def __init__(self, argument: str, call_format: str = "hermes", **settings: Any) -> None:
        """`call_format` is how the policy writes calls of tools; `settings` are the loader's."""
        self._env = _loaded(argument, json.dumps(settings, sort_keys=True, default=repr))
        self._parse = parser(call_format)
        self._rollout: asyncio.Task[Any] | None = None
        self._asked: asyncio.Queue[tuple[list[Message], list[dict[str, Any]]]] = asyncio.Queue()
        self._replies: asyncio.Queue[Any] = asyncio.Queue()
        self._said: list[Message] = []  # the conversation so far
        self.tools: list[dict[str, Any]] = []

    @staticmethod
    def check(argument: str, call_format: str = "hermes", **settings: Any) -> None:
        """Raise `UserError` for an environment that cannot be loaded or played."""
        env = _loaded(argument, json.dumps(settings, sort_keys=True, default=repr))
        parser(call_format)
        if env.rubric.has_group_rewards:
            raise UserError("its rubric compares the rollouts of a group, which are scored one by one here")

    async def reset(self, prompt: Prompt, seed: int) -> list[Message]:
        """Begin the rollout of the row's example, or of one that the seed chooses, up to its first question."""
        named = prompt.extra.get(COLUMN)
        if named is None:
            examples = self._env.get_dataset()
            named = examples[seed % len(examples)]
        example = json.loads(named) if isinstance(named, str) else dict(named)
        client = _client_class()(self._reply)
        self._rollout = asyncio.create_task(self._env.run_rollout(example, client, "policy", {}))
        asked = await self._next()
        if asked is None:
            output = self._rollout.result()
            raise RuntimeError(f"the environment ended before the policy's first turn: {_why(output)}")
        self._said, self.tools = asked[0], asked[1]
        return list(self._said)

    async def step(self, action: Action) -> StepResult:
        """Give the turn to the environment; return the messages that it adds, or the reward of its rubric."""
        parsed = self._parse(str(action))
        message = assistant_message(parsed.content, parsed.reasoning, parsed.calls)
        self._replies.put_nowait((message, action))
        asked = await self._next()
        if asked is None:
            assert self._rollout is not None
            return self._ended(self._rollout.result(), message)
        said, _ = asked
        known = len(self._said) + 1
        if said[: known - 1] != self._said or len(said) <= known or said[known - 1]["role"] != "assistant":
            raise RuntimeError(
                "the environment asks about another conversation than the one that it began; "
                "worker.rollout.agent trains such programs"
            )
        self._said = said
        return said[known:], 0.0, False, {"message": message}

    async def close(self) -> None:
        """End a rollout that is under way, with the environment's own cleanup."""
        if self._rollout is not None:
            self._rollout.cancel()
            await asyncio.gather(self._rollout, return_exceptions=True)

    async def _reply(self, messages: list[Message], tools: list[dict[str, Any]]) -> Any:
        """Ask for a turn of the policy; called by the environment."""
        self._asked.put_nowait((messages, tools))
        return await self._replies.get()

    async def _next(self) -> tuple[list[Message], list[dict[str, Any]]] | None:
        """Wait for the environment's next question; None if the rollout has ended instead."""
        assert self._rollout is not None
        asked = asyncio.create_task(self._asked.get())
        try:
            await asyncio.wait([asked, self._rollout], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            asked.cancel()
        self._rollout.result()  # raises what the environment raised
        return None

    @staticmethod
    def _ended(output: Any, message: Message) -> StepResult:
        if output.get("error") is not None:
            raise RuntimeError(f"the environment failed: {_why(output)}")
        metrics = {name: value for name, value in (output.get("metrics") or {}).items() if _is_number(value)}
        info = {**metrics, "end": output.get("stop_condition") or "completed", "message": message}
        reward = float(output.get("reward") or 0.0)
        return None, reward, True, {"accuracy": float(reward >= 1), **info}


@functools.cache
def _client_class() -> Any:
    """Return a client of verifiers' whose answers come from a coroutine."""
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class Turns(Client):  # type: ignore[misc]
        """Gives the environment's questions to `client`, a coroutine function, and its turns to the environment."""

        def setup_client(self, config: Any) -> Any:
            return config

        async def to_native_tool(self, tool: Any) -> dict[str, Any]:
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            return {"type": "function", "function": function}

        async def to_native_prompt(self, messages: Any) -> tuple[list[Message], dict[str, Any]]:
            return [as_read(message) for message in messages], {}

        async def get_native_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **_: Any
        ) -> Any:
            return await self.client(prompt, tools or [])

        async def raise_from_native_response(self, response: Any) -> None:
            return None

        async def from_native_response(self, response: Any) -> Any:
            message, action = response
            cut = action.finish == "length"
            calls = [
                ToolCall(
                    id=call["id"], name=call["function"]["name"], arguments=json.dumps(call["function"]["arguments"])
                )
                for call in message.get("tool_calls", ())
            ]
            reason = "length" if cut else "tool_calls" if calls else "stop"
            said = ResponseMessage(
                content=message["content"],
                reasoning_content=message.get("reasoning_content"),
                tool_calls=calls or None,
                finish_reason=reason,
                is_truncated=cut,
            )
            return Response(id=f"turn-{action.turn}", created=0, model="policy", message=said)

        async def close(self) -> None:
            return None

    return Turns


def as_read(message: Any) -> Message:
    """Return a message of verifiers' as chat templates and observations read it."""
    fields = message.model_dump(exclude_none=True) if hasattr(message, "model_dump") else dict(message)
    said: Message = {"role": fields["role"], "content": _content(fields.get("content"))}
    if fields.get("tool_call_id"):
        said["tool_call_id"] = fields["tool_call_id"]
    return said


def _content(content: Any) -> Any:
    """Return text as it is, and parts with pictures where they stand."""
    if not isinstance(content, list):
        return content or ""
    parts = []
    for part in content:
        part = part.model_dump() if hasattr(part, "model_dump") else part
        if part.get("type") == "text":
            parts.append({"type": "text", "text": part["text"]})
        elif part.get("type") == "image_url":
            parts.append({"type": "image", "image": _picture(part["image_url"]["url"])})
        else:
            raise ValueError(f"a part of the type {part.get('type')} is not read")
    return "".join(part["text"] for part in parts) if all(part["type"] == "text" for part in parts) else parts


def _picture(url: str) -> Any:
    import base64
    import io

    from PIL import Image

    if not url.startswith("data:image/"):
        raise ValueError("images must be data URLs; nothing is fetched")
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")


def verifiers_rows(argument: str, numbers: range) -> list[dict[str, Any]]:
    """Return examples of the environment's training set, counted from 1."""
    env = _loaded(argument, "{}")
    examples = env.get_dataset()
    if len(examples) < numbers[-1]:
        raise UserError(f"row {numbers[-1]} is behind the last of {len(examples)} examples")
    rows = []
    for number in numbers:
        example = examples[number - 1]
        prompt = [as_read(message) for message in example["prompt"]]
        answer = example.get("answer")
        rows.append({"prompt": prompt, "answer": answer, COLUMN: json.dumps(example, default=str)})
    return rows


def _loaded(argument: str, settings: str) -> Any:
    with _LOCK:
        return _load(argument, settings)


@functools.lru_cache(maxsize=16)
def _load(argument: str, settings: str) -> Any:
    verifiers = require("verifiers", "verifiers")
    try:
        _client_class()
        kind = verifiers.MultiTurnEnv
    except Exception as error:  # later versions have it elsewhere or nowhere, or need packages for it
        version = getattr(verifiers, "__version__", "")
        raise UserError(f"verifiers {version} has no v0 interface ({error}): pip install 'whet[verifiers]'") from error
    if not argument:
        raise UserError("name an environment, as in verifiers:NAME or verifiers:path.py:load_environment")
    given = json.loads(settings)
    try:
        load = find_object("environment", argument) if ":" in argument else None
        env = load(**given) if load is not None else verifiers.load_environment(argument, **given)
    except UserError:
        raise
    except Exception as error:  # of the name, of the loader's settings, of what it downloads
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]
        raise UserError(f"verifiers cannot load {argument!r}: {type(error).__name__}: {text}") from error
    if not isinstance(env, kind):
        raise UserError(f"{argument} is a {type(env).__name__}; environments with turns (MultiTurnEnv) can be trained")
    return env


def _why(output: Any) -> str:
    return str(output.get("error") or output.get("stop_condition"))[:300]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


ENV = VerifiersEnv
ROWS = verifiers_rows
