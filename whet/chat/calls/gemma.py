"""Gemma 4: `<|tool_call>call:name{key:value}<tool_call|>`, with texts between `<|"|>`.

Gemma 3 and earlier have no format of their own; use `hermes` with instructions in the prompt.
"""

from __future__ import annotations

from typing import Any

from whet.chat.calls.format import Format, Found, blocks, read_json, split_reasoning
from whet.chat.messages import Parsed

BEGIN, END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
THINK, THOUGHT = "<|channel>thought", "<channel|>"
_ENDS = ("<turn|>", "<|tool_response>")
MOST_LEVELS = 50


def parse(text: str) -> Parsed:
    """Parse a turn."""
    for end in _ENDS:
        text = text.removesuffix(end)
    reasoning, rest = split_reasoning(text, (BEGIN,), THINK, THOUGHT)
    found, content = Found(text), []
    for before, inside, closed in blocks(rest, BEGIN, END):
        content.append(before)
        if inside is None:
            continue
        name, brace, body = inside.strip().partition("{")
        if not closed or not brace or not name.startswith("call:"):
            found.fail(inside, f"a call must be written as {BEGIN}call:name{{key:value}}{END}")
            continue
        try:
            reader = _Reader("{" + body)
            arguments = reader.value(0)
            reader.finish()
        except ValueError as error:
            found.fail(inside, f"the arguments of {name[5:100]} cannot be read: {error}")
            continue
        found.add(inside, name[5:], arguments)
    return found.parsed("".join(content), reasoning)


class _Reader:
    """Reads values one character after the other."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    def finish(self) -> None:
        self._skip()
        if self._place < len(self._text):
            raise ValueError(f"text behind the arguments: {self._text[self._place : self._place + 20]!r}")

    def value(self, level: int) -> Any:
        self._skip()
        if level > MOST_LEVELS:
            raise ValueError("they nest too deeply")
        if self._text.startswith(QUOTE, self._place):
            return self._quoted()
        mark = self._text[self._place : self._place + 1]
        if mark == "{":
            return self._members("}", level)
        if mark == "[":
            return self._members("]", level)
        return self._bare()

    def _members(self, close: str, level: int) -> Any:
        """Read the inside of a map or a list, whose opening bracket is next."""
        self._place += 1
        named: dict[str, Any] = {}
        listed: list[Any] = []
        while not self._take(close):
            if close == "}":
                key = self._key()
                named[key] = self.value(level + 1)
            else:
                listed.append(self.value(level + 1))
            if not self._take(",") and not self._text.startswith(close, self._place):
                raise ValueError(f"expected , or {close}")
        return named if close == "}" else listed

    def _key(self) -> str:
        self._skip()
        if self._text.startswith(QUOTE, self._place):
            key = self._quoted()
        else:
            end = self._text.find(":", self._place)
            key, self._place = self._text[self._place : end].strip(), end
        if self._place < 0 or not self._take(":"):
            raise ValueError("expected key:value")
        return key

    def _quoted(self) -> str:
        start = self._place + len(QUOTE)
        end = self._text.find(QUOTE, start)
        if end < 0:
            raise ValueError(f"a text is not closed with {QUOTE}")
        self._place = end + len(QUOTE)
        return self._text[start:end]

    def _bare(self) -> Any:
        start = self._place
        while self._place < len(self._text) and self._text[self._place] not in ",}]":
            self._place += 1
        return read_json(self._text[start : self._place])

    def _take(self, mark: str) -> bool:
        self._skip()
        taken = self._text.startswith(mark, self._place)
        self._place += taken
        return taken

    def _skip(self) -> None:
        while self._place < len(self._text) and self._text[self._place].isspace():
            self._place += 1


FORMAT = Format(
    parse,
    ("<|tool_call>",),
    (BEGIN,),
    rank=2,
    tokens=(BEGIN, END, QUOTE, "<|channel>", THOUGHT),
    thought=(THINK, THOUGHT),
)
