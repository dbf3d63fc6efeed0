"""GLM 4.5 and later: `<tool_call>`, the name, pairs of `<arg_key>` and `<arg_value>`, `</tool_call>`."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, blocks, split_reasoning
from whet.chat.messages import Parsed

BEGIN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_ENDS = ("<|observation|>", "<|user|>", "<|endoftext|>")


def parse(text: str) -> Parsed:
    """Parse a turn; values are texts, which the tool's schema gives their types."""
    for end in _ENDS:
        text = text.removesuffix(end)
    reasoning, rest = split_reasoning(text, (BEGIN,))
    found, content = Found(text), []
    for before, inside, closed in blocks(rest, BEGIN, END):
        content.append(before)
        if inside is None:
            continue
        if closed:
            _read(inside, found)
        else:
            found.fail(inside, f"the call was not finished: {END} is missing")
    return found.parsed("".join(content), reasoning)


def _read(inside: str, found: Found) -> None:
    arguments: dict[str, str] = {}
    place = first = inside.find(KEY)
    while place >= 0:
        key_end = inside.find(KEY_END, place)
        value = inside.find(VALUE, key_end) if key_end >= 0 else -1
        value_end = inside.find(VALUE_END, value) if value >= 0 else -1
        if value_end < 0:
            found.fail(inside, f"an argument needs {KEY}, {KEY_END}, {VALUE} and {VALUE_END}")
            return
        arguments[inside[place + len(KEY) : key_end].strip()] = inside[value + len(VALUE) : value_end]
        place = inside.find(KEY, value_end)
    found.add(inside, inside[: first if first >= 0 else len(inside)], arguments)


FORMAT = Format(
    parse, ("<arg_key>", "<arg_value>"), (BEGIN,), rank=2, tokens=(BEGIN, END, KEY, KEY_END, VALUE, VALUE_END)
)
