"""Calls of tools inside a response, as models of the Hermes and Qwen kind write them.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Bern"}}
    </tool_call>

What stands between the tags and is no such object stays text.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field

from whet.serving.text import held_back

BEGIN, END = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Call:
    """A function to be called."""

    name: str
    arguments: str  # JSON
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")


class ToolSplit:
    """Takes calls out of a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._after_call = False  # white space between calls belongs to nobody

    def add(self, text: str) -> tuple[str, list[Call]]:
        """The text and the calls that are complete by now."""
        self._held += text
        shown = ""
        calls: list[Call] = []
        while (start := self._held.find(BEGIN)) >= 0:
            shown += self._text(self._held[:start])
            self._held = self._held[start:]
            end = self._held.find(END)
            if end < 0:
                return shown, calls
            call = read_call(self._held[len(BEGIN) : end])
            if call is None:
                shown += self._text(self._held[: end + len(END)])
            else:
                calls.append(call)
                shown, self._after_call = shown.rstrip() if not shown.strip() else shown, True
            self._held = self._held[end + len(END) :]
        cut = len(self._held) - held_back(self._held, [BEGIN])
        shown += self._text(self._held[:cut])
        self._held = self._held[cut:]
        return shown, calls

    def finish(self) -> tuple[str, list[Call]]:
        """Return the rest; some models omit the closing tag at the end."""
        rest, self._held = self._held, ""
        call = read_call(rest[len(BEGIN) :]) if rest.startswith(BEGIN) else None
        return ("", [call]) if call is not None else (self._text(rest), [])

    def _text(self, text: str) -> str:
        if self._after_call:
            text = text.lstrip()
            self._after_call = not text
        return text


def read_call(text: str) -> Call | None:
    """The call that a text between tags spells, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
