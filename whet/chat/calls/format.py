"""What every format of tool calls consists of, and what their parsers share.

Parsers take text with its special tokens, never raise, and read 1 MB in well under a second: they search for literal
markers from left to right and look at no character more than a few times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from whet.chat.messages import BadCall, Parsed, ToolCall, call_id

THINK, THOUGHT = "<think>", "</think>"
LONGEST_TEXT = 300  # characters of a bad call that are kept


@dataclass(frozen=True)
class Format:
    """A format of tool calls."""

    parse: Callable[[str], Parsed]
    marks: tuple[str, ...]  # all of them stand in the chat templates of this format
    opens: tuple[str, ...]  # what a call begins with: a stream holds text back from there on
    rank: int = 0  # of several formats that fit a template the highest is right
    tokens: tuple[str, ...] = ()  # markers that a vocabulary may have as special tokens
    thought: tuple[str, str] = (THINK, THOUGHT)  # begin and end of reasoning
    is_framed: bool = False  # True if text outside of calls is marked up too: a stream waits for the end of the turn
    forced: str = ""  # what a prompt ends with so that a call must follow, up to the function's name
    named: str = ""  # what follows the name

    def is_for(self, template: str) -> bool:
        """True if a template writes calls in this format."""
        return bool(self.marks) and all(mark in template for mark in self.marks)


class Found:
    """Calls found in one turn."""

    def __init__(self, text: str) -> None:
        self._digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self.calls: list[ToolCall] = []
        self.bad: list[BadCall] = []

    def add(self, source: str, name: Any, arguments: Any, given: Any = None) -> None:
        """Add a call, or a bad one if its name or arguments are none; `given` is an id that the policy wrote."""
        if not isinstance(name, str) or not name.strip():
            self.fail(source, "the call has no name")
        elif not isinstance(arguments, dict):
            self.fail(source, f"the arguments of {name.strip()} must be an object")
        else:
            own = given if isinstance(given, str) and given else call_id(self._digest, len(self.calls))
            self.calls.append(ToolCall(name.strip(), arguments, own))

    def add_json(self, source: str) -> None:
        """Add a call that is written as an object with name and arguments (or parameters)."""
        try:
            value = read_json(source)
        except ValueError as error:
            self.fail(source, f"the call is not valid JSON: {error}")
            return
        self.add_object(source, value)

    def add_object(self, source: str, value: Any) -> None:
        """Add a call that is an object with name and arguments, which may be a text of JSON."""
        if not isinstance(value, dict):
            self.fail(source, "the call must be an object with name and arguments")
            return
        function = value.get("function")
        holder = function if isinstance(function, dict) else value
        arguments = holder.get("arguments", holder.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = read_json(arguments)
            except ValueError as error:
                self.fail(source, f"the arguments are not valid JSON: {error}")
                return
        self.add(source, holder.get("name"), arguments, value.get("id"))

    def fail(self, source: str, reason: str) -> None:
        """Add a bad call."""
        self.bad.append(BadCall(source[:LONGEST_TEXT], reason[:LONGEST_TEXT]))

    def parsed(self, content: str, reasoning: str | None) -> Parsed:
        """Return everything as one result."""
        return Parsed(content.strip() if self.calls or self.bad else content, reasoning, self.calls, self.bad)


def read_json(text: str) -> Any:
    """Return a JSON value; `ValueError` for anything else, also for values that nest too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def split_reasoning(
    text: str, opens: tuple[str, ...] = (), begin: str = THINK, end: str = THOUGHT
) -> tuple[str | None, str]:
    """Return the reasoning of a turn, or None, and the rest.

    Reasoning may have begun in the prompt: then only its end is in the text. Calls inside of it are none; where it does
    not end, what begins a call ends it.
    """
    head = text.lstrip()
    starts = head.startswith(begin)
    close = text.find(end)
    if close >= 0:
        thought = text[:close].strip()
        return thought.removeprefix(begin).strip(), text[close + len(end) :].lstrip("\n")
    if not starts:
        return None, text
    body = head[len(begin) :]
    call = min((place for place in (body.find(each) for each in opens) if place >= 0), default=len(body))
    return body[:call].strip(), body[call:]


def without_calls(form: Format | None) -> Callable[[str], Parsed]:
    """Return a parser that takes reasoning out of a turn and leaves calls in its text; None: in the usual marks."""
    begin, end = (THINK, THOUGHT) if form is None else form.thought

    def parse(text: str) -> Parsed:
        if form is not None and form.is_framed:
            parsed = form.parse(text)
            return Parsed(parsed.content, parsed.reasoning)
        reasoning, content = split_reasoning(text, (), begin, end)
        return Parsed(content, reasoning)

    return parse


def thoughts_only(form: Format) -> Format:
    """Return a format without calls, for turns in which none may be made."""
    return replace(form, parse=without_calls(form), opens=(), forced="", named="")


USUAL_THOUGHT = without_calls(None)  # for models whose reasoning stands between <think> and </think>


def blocks(text: str, begin: str, end: str) -> Iterator[tuple[str, str | None, bool]]:
    """Yield (text before a block, the block's inside, whether it was closed); last the rest, with None."""
    place = 0
    while (start := text.find(begin, place)) >= 0:
        close = text.find(end, start + len(begin))
        inside = text[start + len(begin) : close if close >= 0 else len(text)]
        yield text[place:start], inside, close >= 0
        if close < 0:
            return
        place = close + len(end)
    yield text[place:], None, True


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON value")
