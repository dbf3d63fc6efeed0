"""Calls of OpenAI's chat completions, read and checked, and the answers to them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whet.chat.messages import Message
from whet.envs.harness.contents import RefusedError, read_content
from whet.types import FinishReason

_ROLES = ("system", "user", "assistant", "tool")
# Settings whose meaning could not be kept; where they are off they are accepted.
_REFUSED = {
    "n": (None, 1),
    "logprobs": (None, False),
    "response_format": (None, {"type": "text"}),
    "audio": (None,),
    "functions": (None, []),
}


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call: the conversation so far, and what matters of the other fields.

    Temperature and its like are the run's, so that what is sampled is the policy that is trained.
    """

    messages: list[Message]  # contents are texts, or parts where there are images: {"type": "image"} for each
    tools: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False  # wanted at the end of a stream
    model: str = "policy"
    splits: bool = False  # True if the API has a place for reasoning beside the text
    marks_cuts: bool = False  # True if the API calls a turn that was cut incomplete, for which clients raise
    images: tuple[bytes, ...] = ()  # files of the images in the messages, in order


@dataclass(frozen=True, slots=True)
class Reply:
    """A turn of the policy as the harness sees it."""

    id: str
    message: Message
    finish: FinishReason
    prompt_tokens: int
    tokens: int
    stop: str | None = None  # the stop text of the call that ended it


def read_call(body: Any) -> ChatCall:
    """Read the body of a call; `RefusedError` says what is wrong with it."""
    if not isinstance(body, Mapping):
        raise RefusedError(400, "the body must be a JSON object")
    for name, fine in _REFUSED.items():
        if body.get(name) not in fine:
            raise RefusedError(400, f"{name} is not supported here: leave it out", "unsupported_value")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise RefusedError(400, "messages must be a list that is not empty")
    images: list[bytes] = []
    messages = [_message(each, number, images) for number, each in enumerate(given)]
    if messages[-1]["role"] == "assistant":
        raise RefusedError(400, "the last message must not be the assistant's: the policy writes the next turn")
    options = body.get("stream_options")
    return ChatCall(
        messages,
        None if body.get("tool_choice") == "none" else _tools(body.get("tools")),
        _limit(body),
        _stop(body.get("stop")),
        body.get("stream") is True,
        isinstance(options, Mapping) and options.get("include_usage") is True,
        str(body.get("model") or "policy"),
        images=tuple(images),
    )


def _message(given: Any, number: int, images: list[bytes]) -> Message:
    where = f"messages[{number}]"
    if not isinstance(given, Mapping):
        raise RefusedError(400, f"{where} must be an object with role and content")
    role = "system" if given.get("role") == "developer" else given.get("role")
    if role not in _ROLES:
        raise RefusedError(400, f"{where}.role must be one of {', '.join(_ROLES)}")
    message: Message = {"role": role, "content": read_content(given.get("content"), where, role, images)}
    reasoning = given.get("reasoning_content")
    if role == "assistant" and isinstance(reasoning, str):
        message["reasoning_content"] = reasoning
    if role == "assistant" and given.get("tool_calls"):
        message["tool_calls"] = _calls(given["tool_calls"], where)
    if role == "tool":
        message["tool_call_id"] = str(given.get("tool_call_id") or "")
    if isinstance(given.get("name"), str):
        message["name"] = given["name"]
    return message


def _calls(given: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise RefusedError(400, f"{where}.tool_calls must be a list")
    return [_tool_call(each, f"{where}.tool_calls[{number}]") for number, each in enumerate(given)]


def _tool_call(given: Any, where: str) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RefusedError(400, f"{where} must have a function with a name")
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):  # templates write what is no JSON as it is
            arguments = json.loads(arguments) if arguments else {}
    named = {"name": function["name"], "arguments": {} if arguments is None else arguments}
    return {"id": str(given.get("id") or ""), "type": "function", "function": named}


def _tools(given: Any) -> list[dict[str, Any]] | None:
    if not given:
        return None
    if not isinstance(given, list):
        raise RefusedError(400, "tools must be a list")
    for number, tool in enumerate(given):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RefusedError(400, f"tools[{number}] must be of type function, with a name")
    return [dict(tool) for tool in given]


def _limit(body: Mapping[str, Any]) -> int | None:
    given = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RefusedError(400, "max_tokens must be a whole number of at least 1")
    return min(given) if given else None


def _stop(given: Any) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise RefusedError(400, "stop must be a text or a list of texts that are not empty")
    return tuple(texts)


def answer(call: ChatCall, reply: Reply) -> dict[str, Any]:
    """Return a reply as a `chat.completion` object."""
    choice = {"index": 0, "message": _sent(reply.message), "logprobs": None, "finish_reason": _finish(reply)}
    return {**_head(call, reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def answer_events(call: ChatCall, reply: Reply) -> Iterator[str]:
    """Yield a reply as the events of a stream: the whole turn at once, for it is recorded before it is sent."""
    head = _head(call, reply, "chat.completion.chunk")
    delta = _sent(reply.message)
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **each} for number, each in enumerate(calls)]
    for added, finish in ((delta, None), ({}, _finish(reply))):
        yield _event({**head, "choices": [{"index": 0, "delta": added, "logprobs": None, "finish_reason": finish}]})
    if call.usage:
        yield _event({**head, "choices": [], "usage": _usage(reply)})
    yield "data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _head(call: ChatCall, reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": reply.id, "object": kind, "created": int(time.time()), "model": call.model}


def _sent(message: Message) -> dict[str, Any]:
    sent = {"role": "assistant", "content": message["content"], "refusal": None}
    if "reasoning_content" in message:
        sent["reasoning_content"] = message["reasoning_content"]
    if calls := message.get("tool_calls"):
        sent["content"] = message["content"] or None
        sent["tool_calls"] = [
            each | {"function": each["function"] | {"arguments": json.dumps(each["function"]["arguments"])}}
            for each in calls
        ]
    return sent


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.message.get("tool_calls") else reply.finish


def _usage(reply: Reply) -> dict[str, int]:
    total = reply.prompt_tokens + reply.tokens
    return {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.tokens, "total_tokens": total}
