"""Calls of tools and reasoning inside a response, by the parsers that training uses.

Reasoning and text are shown as they come; from what begins a call, a response is held back until its end and parsed as
a whole. What is no call stays text.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from whet.chat.calls.format import Format
from whet.serving.errors import ApiError
from whet.serving.requests import ChatRequest, NamedTool
from whet.serving.text import held_back
from whet.tools.arguments import checked


@dataclass(frozen=True, slots=True)
class Call:
    """A function to be called."""

    name: str
    arguments: str  # JSON
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")


@dataclass(frozen=True, slots=True)
class CallReader:
    """Everything that reading the calls of one request's responses needs."""

    format: Format
    hidden: frozenset[int] = frozenset()  # tokens that are left out of the text
    tools: list[dict[str, Any]] = field(default_factory=list)
    begun: str = ""  # text of the response that stands in the prompt
    thinks: bool = False  # True if the prompt ends within reasoning

    def calls(self, text: str) -> tuple[list[Call], str]:
        """Return the calls of a whole response, and its text outside of reasoning and calls, bad ones included."""
        parsed = self.format.parse(text)
        schemas = {tool["function"]["name"]: _types(tool["function"].get("parameters")) for tool in self.tools}
        calls = []
        for call in parsed.calls:  # formats that write values as they are give texts, which the schema gives types
            arguments = checked(call.arguments, schemas.get(call.name, {}))[0]
            calls.append(Call(call.name, json.dumps(arguments, ensure_ascii=False)))
        return calls, "\n".join([parsed.content, *(bad.text for bad in parsed.bad)]).strip()


def _types(parameters: Any) -> dict[str, Any]:
    """Return a schema with nothing but the types of arguments; a client may have sent anything."""
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    types: dict[str, Any] = {}
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        kind = schema.get("type") if isinstance(schema, dict) else None
        kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
        types[name] = {"type": kinds} if kinds else {}
    return {"parameters": {"properties": types}}


class ToolSplit:
    """Takes reasoning and calls out of a text that comes in pieces; how it is cut into pieces changes nothing."""

    def __init__(self, reader: CallReader) -> None:
        self._reader, self._format = reader, reader.format
        self._begin, self._end = reader.format.thought
        self._whole = reader.begun  # everything so far
        self._held = reader.begun.removeprefix(self._end).lstrip()  # of it, what is not shown
        self._told = self._thought = ""  # shown as text, and as reasoning
        self._state = "telling" if reader.begun else "thinking" if reader.thinks else "start"

    def add(self, text: str) -> tuple[str, str]:
        """Return (text, reasoning) that can be shown by now."""
        self._whole += text
        self._held += text
        if self._format.is_framed:
            return "", ""
        if self._state == "start":
            self._start()
        reasoning = self._think() if self._state == "thinking" else ""
        if self._state == "gap":  # line breaks behind reasoning belong to nobody
            self._held = self._held.lstrip("\n")
            self._state = "telling" if self._held else "gap"
        return (self._tell() if self._state == "telling" else ""), reasoning

    def finish(self) -> tuple[str, str, list[Call]]:
        """Return the rest: text, reasoning and calls."""
        calls, content = self._reader.calls(self._whole)
        if self._format.is_framed:
            return content, self._format.parse(self._whole).reasoning or "", calls
        if self._state == "thinking":  # it did not end, unless a call ended it
            thought = self._held[: self._opening() if calls else len(self._held)]
            return "", thought.rstrip() if self._thought else thought.strip(), calls
        if not calls:
            return self._held, "", calls
        told = self._told.strip()
        return (content[len(told) :] if content.startswith(told) else ""), "", calls

    def _start(self) -> None:
        head = self._held.lstrip()
        if head.startswith(self._begin):
            self._state, self._held = "thinking", head[len(self._begin) :]
        elif not self._begin.startswith(head):
            self._state = "telling"

    def _think(self) -> str:
        place = self._held.find(self._end)
        if place >= 0:
            text, self._held = self._held[:place].rstrip(), self._held[place + len(self._end) :]
            self._state = "gap"
        else:
            text = self._release([self._end])
        text = text if self._thought else text.lstrip()
        self._thought += text
        return text

    def _tell(self) -> str:
        text = self._release([])
        self._told += text
        return text

    def _release(self, marks: list[str]) -> str:
        """Return what stands before anything that may begin a call or one of the marks, and before white space."""
        marks = [*marks, *(each for each in self._format.opens if len(each) > 1)]
        cut = min(self._opening(), len(self._held) - held_back(self._held, marks))
        cut = len(self._held[:cut].rstrip())
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _opening(self) -> int:
        """Return the place of what begins a call; a single character does so at the beginning of a turn only."""
        places = [self._held.find(each) for each in self._format.opens if len(each) > 1]
        if not self._told and self._state == "telling" and self._held.lstrip().startswith(self._format.opens):
            places.append(0)
        return min((place for place in places if place >= 0), default=len(self._held))


def begun_call(request: ChatRequest, form: Format) -> str:
    """Return what the prompt must end with, so that the response is a call; "" if the model is free to choose."""
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return ""
    names = [tool.function.name for tool in request.tools or ()]
    name = choice.function.name if isinstance(choice, NamedTool) else names[0] if len(names) == 1 else ""
    if not names:
        raise ApiError(400, "tool_choice asks for a call, and there are no tools", param="tool_choice")
    if name and name not in names:
        raise ApiError(400, f"tool_choice: there is no tool {name[:100]} in tools", param="tool_choice")
    if not form.forced:
        raise ApiError(
            400, "tool_choice: calls in this model's format cannot be forced; use auto or none", param="tool_choice"
        )
    return f"{form.forced}{name}{form.named}" if name else form.forced
