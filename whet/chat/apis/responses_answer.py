"""Answers of OpenAI's Responses API: a response, or the events of its stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from whet.chat.apis.turn import Called, End, Turn
from whet.chat.messages import Message

Event = tuple[str, dict[str, Any]]
Item = dict[str, Any]


class ResponseAnswer:
    """The answer to one request. Items come in the order reasoning, message, calls."""

    def __init__(self, model: str, echo: dict[str, Any], keep: bool) -> None:
        """`echo` is what the response repeats of its request; `keep` whether later requests may refer to it."""
        self.id = f"resp_{secrets.token_hex(12)}"
        self._head = {"id": self.id, "object": "response", "created_at": int(time.time()), "model": model}
        self._rest = {
            "parallel_tool_calls": True,
            "reasoning": {"effort": None, "summary": None},
            "store": keep,
            "text": {"format": {"type": "text"}},
            "truncation": "disabled",
            "user": None,
            **echo,
            "metadata": echo.get("metadata") or {},
        }
        self._items: list[Item] = []
        self._open: Item | None = None  # the item that the stream is in, one of `_items`
        self._number = -1

    def whole(self, turn: Turn, end: End) -> dict[str, Any]:
        """Return the response."""
        if turn.reasoning:
            self._items.append(_item("reasoning", turn.reasoning))
        if turn.text or not turn.calls:
            self._items.append(_item("message", turn.text))
        self._items += [_call_item(call) for call in turn.calls]
        return self._response(end)

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """Yield the first events of a stream."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response(None))

    def add(self, turn: Turn) -> Iterator[Event]:
        """Yield the events of what a piece adds."""
        for kind, text in (("reasoning", turn.reasoning), ("message", turn.text)):
            if text:
                yield from self._enter(kind)
                yield from self._extend(text)
        for call in turn.calls:
            yield from self._close()
            item = _call_item(call)
            self._items.append(item)
            place = {"output_index": len(self._items) - 1, "item_id": item["id"]}
            started = item | {"arguments": "", "status": "in_progress"}
            yield self._event("response.output_item.added", output_index=place["output_index"], item=started)
            name = "response.function_call_arguments"
            yield self._event(f"{name}.delta", **place, delta=call.arguments)
            yield self._event(f"{name}.done", **place, name=call.name, arguments=call.arguments)
            yield self._event("response.output_item.done", output_index=place["output_index"], item=item)

    def end(self, end: End) -> Iterator[Event]:
        """Yield the last events."""
        if not any(item["type"] != "reasoning" for item in self._items):
            yield from self._enter("message")
        yield from self._close()
        response = self._response(end)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, message: str, code: str) -> Iterator[Event]:
        """Yield what ends a stream that cannot be finished."""
        failure = {"status": "failed", "error": {"code": code, "message": message}}
        yield self._event("response.failed", response=self._response(None) | failure)

    def _response(self, end: End | None) -> dict[str, Any]:
        cut = end is not None and end.finish == "length"
        return {
            **self._head,
            "status": "in_progress" if end is None else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [dict(item) for item in self._items],
            "usage": None if end is None else _usage(end),
            **self._rest,
        }

    def _enter(self, kind: str) -> Iterator[Event]:
        """Open an item, unless the stream is in one of its kind."""
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._close()
        item = _item(kind, "")
        started = item | {"content": [], "status": "in_progress"}
        self._items.append(item)
        self._open = item
        yield self._event("response.output_item.added", output_index=len(self._items) - 1, item=started)
        yield self._event("response.content_part.added", **self._place(), part=dict(item["content"][0]))

    def _extend(self, text: str) -> Iterator[Event]:
        assert self._open is not None
        self._open["content"][0]["text"] += text
        yield self._event(f"response.{_part_name(self._open)}.delta", **self._place(), delta=text, **_extra(self._open))

    def _close(self) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        part = dict(item["content"][0])
        name = f"response.{_part_name(item)}.done"
        yield self._event(name, **self._place(), text=part["text"], **_extra(item))
        yield self._event("response.content_part.done", **self._place(), part=part)
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=dict(item))
        self._open = None

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1, "content_index": 0}

    def _event(self, kind: str, /, **data: Any) -> Event:
        self._number += 1
        return kind, {"type": kind, "sequence_number": self._number, **data}


def kept_turn(turn: Turn) -> Message:
    """Return a turn as the body of a later chat completion has it."""
    message: Message = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    return message


def _item(kind: str, text: str) -> Item:
    if kind == "reasoning":
        content: dict[str, Any] = {"type": "reasoning_text", "text": text}
        return {"id": f"rs_{secrets.token_hex(12)}", "type": kind, "summary": [], "content": [content]} | _DONE
    content = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": f"msg_{secrets.token_hex(12)}", "type": kind, "role": "assistant", "content": [content]} | _DONE


_DONE = {"status": "completed"}


def _call_item(call: Called) -> Item:
    named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call"} | named | _DONE


def _part_name(item: Item) -> str:
    return "reasoning_text" if item["type"] == "reasoning" else "output_text"


def _extra(item: Item) -> dict[str, Any]:
    return {} if item["type"] == "reasoning" else {"logprobs": []}


def _usage(end: End) -> dict[str, Any]:
    return {
        "input_tokens": end.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": end.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": end.prompt_tokens + end.tokens,
    }
