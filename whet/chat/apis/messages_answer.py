"""Answers of Anthropic's Messages API: a message, or the events of its stream."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from whet.chat.apis.turn import End, Turn

Event = tuple[str, dict[str, Any]]
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessageAnswer:
    """The answer to one request. Blocks come in the order thinking, text, calls."""

    def __init__(self, model: str) -> None:
        self.id, self._model = f"msg_{secrets.token_hex(12)}", model
        self._open: str | None = None  # type of the block that the stream is in
        self._index = -1

    def whole(self, turn: Turn, end: End) -> dict[str, Any]:
        """Return the message."""
        content: list[dict[str, Any]] = []
        if turn.reasoning:
            content.append({"type": "thinking", "thinking": turn.reasoning, "signature": ""})
        if turn.text or not turn.calls:
            content.append({"type": "text", "text": turn.text})
        content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.values} for call in turn.calls]
        return self._message(content, _reason(end), end.stop, _usage(end.prompt_tokens, end.tokens))

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """Yield the first events of a stream."""
        message = self._message([], None, None, _usage(prompt_tokens, 0))
        yield "message_start", {"type": "message_start", "message": message}

    def add(self, turn: Turn) -> Iterator[Event]:
        """Yield the events of what a piece adds."""
        if turn.reasoning:
            yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": turn.reasoning})
        if turn.text:
            yield from self._block("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": turn.text})
        for call in turn.calls:
            yield from self._close()
            yield from self._block("tool_use", {"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            yield self._delta({"type": "input_json_delta", "partial_json": json.dumps(call.values)})

    def end(self, end: End) -> Iterator[Event]:
        """Yield the last events."""
        if self._open in (None, "thinking"):
            yield from self._block("text", {"type": "text", "text": ""})
        yield from self._close()
        delta = {"stop_reason": _reason(end), "stop_sequence": end.stop}
        yield (
            "message_delta",
            {"type": "message_delta", "delta": delta, "usage": _usage(end.prompt_tokens, end.tokens)},
        )
        yield "message_stop", {"type": "message_stop"}

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage,
        }

    def _block(self, kind: str, block: dict[str, Any]) -> Iterator[Event]:
        if self._open == kind:
            return
        yield from self._close()
        self._open, self._index = kind, self._index + 1
        yield (
            "content_block_start",
            {"type": "content_block_start", "index": self._index, "content_block": block},
        )

    def _delta(self, delta: dict[str, Any]) -> Event:
        return "content_block_delta", {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> Iterator[Event]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        if self._open is not None:
            self._open = None
            yield "content_block_stop", {"type": "content_block_stop", "index": self._index}


def error_answer(status: int, message: str) -> dict[str, Any]:
    """Return an error as Anthropic's clients read it."""
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def _reason(end: End) -> str:
    if end.stop is not None:
        return "stop_sequence"
    return {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[end.finish]


def _usage(prompt: int, drawn: int) -> dict[str, int]:
    return {"input_tokens": prompt, "output_tokens": drawn}
