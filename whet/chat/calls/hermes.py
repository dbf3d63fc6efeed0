"""Hermes, Qwen 2.5 and Qwen 3: `<tool_call>`, an object with name and arguments, `</tool_call>`."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, blocks, split_reasoning
from whet.chat.messages import Parsed

BEGIN, END = "<tool_call>", "</tool_call>"


def parse(text: str) -> Parsed:
    """Parse a turn; a call without the closing tag is taken if it is complete."""
    reasoning, rest = split_reasoning(text, (BEGIN,))
    found, content = Found(text), []
    for before, inside, closed in blocks(rest, BEGIN, END):
        content.append(before)
        if inside is None:
            continue
        seen = len(found.bad)
        found.add_json(inside.strip())
        if not closed and len(found.bad) > seen:
            found.bad[-1:] = []
            found.fail(inside, f"the call was not finished: {END} is missing")
    return found.parsed("".join(content), reasoning)


FORMAT = Format(
    parse,
    ("<tool_call>",),
    (BEGIN,),
    tokens=(BEGIN, END),
    forced='<tool_call>\n{"name": "',
    named='", "arguments": ',
)
