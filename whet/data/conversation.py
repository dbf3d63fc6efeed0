"""The column of whole chats, with turns of the assistant's to learn from, and the tools these may call."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from whet.data.chat import Message
from whet.data.columns import Sources
from whet.data.formats import Columns
from whet.data.messages import read_message
from whet.errors import UserError


def as_conversation(value: Any, uid: str, key: str, inline: Sources | None = None) -> list[Message]:
    """The turns of a chat, checked; what comes after the assistant's last one is left out, as nobody learns from it.

    A chat may be written as JSON. Images and videos that stand in it go into `inline`; without it they are refused.
    """
    turns = _parsed(value)
    if not isinstance(turns, list) or not turns:
        raise UserError(f"{uid}: column {key!r} must hold a chat: a list of {{role, content}} turns.")
    messages = [_turn(turn, f"{uid}: turn {number}", inline) for number, turn in enumerate(turns, start=1)]
    last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if last is None:
        raise UserError(f"{uid}: the chat in column {key!r} has no turn of the assistant's to learn from.")
    if messages[0]["role"] == "assistant":
        raise UserError(
            f"{uid}: the chat in column {key!r} begins with the assistant; put a turn of the user's or the system's "
            "before it."
        )
    return messages[: last + 1]


def tools_of(row: Columns, name: str, uid: str) -> list[dict[str, Any]] | None:
    """The tools of a row, as JSON schemas; None where it has none."""
    value = _parsed(row.get(name))
    if value is None or value == [] or value == "":
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise UserError(f"{uid}: column {name!r} must hold a list of tools, each an object as in OpenAI's API.")
    return [_filled(tool) for tool in value]


def called(messages: list[Message]) -> list[str]:
    """The names of the tools that the assistant calls."""
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    return [str((call.get("function") or call).get("name", "")) for call in calls]


def without_words(messages: list[Message]) -> list[Message]:
    """The same chat with null for the content of turns that only call: templates ask for it, or cannot read it."""
    return [
        message | {"content": None} if "tool_calls" in message and not message["content"] else message
        for message in messages
    ]


def with_arguments_as_text(messages: list[Message]) -> list[Message]:
    """The same chat with the arguments of calls as texts of JSON, which some templates want them to be."""

    def spelt(call: dict[str, Any]) -> dict[str, Any]:
        if isinstance(call.get("function"), dict):
            return call | {"function": spelt(call["function"])}
        arguments = call.get("arguments")
        return call | {"arguments": json.dumps(arguments, ensure_ascii=False)} if isinstance(arguments, dict) else call

    return [
        message | {"tool_calls": [spelt(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _turn(turn: Any, where: str, inline: Sources | None) -> Message:
    if isinstance(turn, dict) and turn.get("tool_calls"):
        message = read_message({"content": None, **turn}, where, inline)
        return message | {"tool_calls": _calls(turn["tool_calls"], where)}
    message = read_message(turn, where, inline)
    spoken = any(map(message.get, ("reasoning_content", "thinking")))
    if message["role"] == "assistant" and not message["content"].strip() and not spoken:
        raise UserError(f"{where} of the chat is empty: there is nothing of the assistant's to learn. Remove the row.")
    return message


def _calls(calls: Any, where: str) -> list[Any]:
    calls = _parsed(calls)
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise UserError(f"{where}: tool_calls must be a list of objects as in OpenAI's API.")
    read = []
    for call in map(_filled, calls):
        function = call.get("function")
        for holder in (call, function):
            # OpenAI's API has them as a text of JSON, which most templates would put into quotes once more.
            if isinstance(holder, dict) and isinstance(holder.get("arguments"), str):
                holder["arguments"] = _parsed(holder["arguments"])
        read.append(call)
    return read


def _parsed(value: Any) -> Any:
    """Parse a string of JSON; return anything else unchanged."""
    if isinstance(value, str) and value.strip().startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _filled(value: Any) -> Any:
    """Drop empty fields: Parquet gives every object the fields of all others."""
    if isinstance(value, dict):
        return {name: _filled(item) for name, item in value.items() if item is not None}
    return [_filled(item) for item in value] if isinstance(value, list) else value
