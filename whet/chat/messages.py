"""Chat messages and calls of tools, as parsers, templates, tools and servers exchange them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# role, content (text, or parts such as {"type": "image"}), and where they apply reasoning_content, tool_calls,
# tool_call_id and name, as in OpenAI's API; arguments of calls are objects, not texts of JSON.
Message = dict[str, Any]
ID_LENGTH = 9  # Mistral's templates refuse ids of any other length
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the policy called."""

    name: str
    arguments: dict[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class BadCall:
    """Text that begins as a call and is none."""

    text: str
    reason: str  # a sentence for the policy to read


@dataclass(slots=True)
class Parsed:
    """A turn of the policy's, taken apart."""

    content: str  # text outside of reasoning and calls
    reasoning: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    bad: list[BadCall] = field(default_factory=list)


def call_id(text: str, number: int) -> str:
    """Return an id for a call that the policy gave none: a function of the turn's text and the call's number in it.

    Templates write ids into prompts, so a resumed run must make the same ones.
    """
    digest = int.from_bytes(hashlib.sha256(f"{number}\0{text}".encode("utf-8", "replace")).digest()[:8], "big")
    return "".join(_DIGITS[digest // 36**place % 36] for place in range(ID_LENGTH))


def assistant_message(content: str, reasoning: str | None = None, calls: Iterable[ToolCall] = ()) -> Message:
    """Return a turn of the policy's as templates read it."""
    message: Message = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    made = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return message | {"tool_calls": made} if made else message


def tool_message(call: ToolCall, content: Any) -> Message:
    """Return the result of a call as templates read it."""
    return {"role": "tool", "content": content, "tool_call_id": call.id, "name": call.name}
