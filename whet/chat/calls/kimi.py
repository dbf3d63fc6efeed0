"""Kimi K2: a section of calls, each with an id `functions.NAME:NUMBER`."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, blocks, read_json, split_reasoning
from whet.chat.messages import Parsed

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"


def parse(text: str) -> Parsed:
    """Parse a turn."""
    reasoning, rest = split_reasoning(text.removesuffix("<|im_end|>"), (SECTION,))
    found = Found(text)
    content, _, behind = rest.partition(SECTION)
    calls, _, after = behind.partition(SECTION_END)
    for _, inside, closed in blocks(calls, BEGIN, END):
        if inside is None:
            continue
        given, _, body = inside.partition(ARGUMENTS)
        name = given.strip().removeprefix("functions.").rpartition(":")[0] or given.strip()
        if not closed:
            found.fail(inside, f"the call was not finished: {END} is missing")
            continue
        try:
            found.add(inside, name, read_json(body.strip() or "{}"), given.strip())
        except ValueError as error:
            found.fail(inside, f"the arguments of {name[:100]} are not valid JSON: {error}")
    return found.parsed(content + after, reasoning)


FORMAT = Format(
    parse, ("<|tool_call_argument_begin|>",), (SECTION,), rank=2, tokens=(SECTION, SECTION_END, BEGIN, ARGUMENTS, END)
)
