"""Mistral: `[TOOL_CALLS]` and a list of objects (v3, v7), or names with `[ARGS]` (v11 and later)."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, read_json, split_reasoning
from whet.chat.messages import Parsed

BEGIN, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
THINK, THOUGHT = "[THINK]", "[/THINK]"


def parse(text: str) -> Parsed:
    """Parse a turn."""
    reasoning, rest = split_reasoning(text.removesuffix("</s>"), (BEGIN,), THINK, THOUGHT)
    content, *parts = rest.split(BEGIN)
    found = Found(text)
    for part in parts:
        if ARGUMENTS in part:
            _read_named(part, found)
        else:
            _read_list(part.strip(), found)
    return found.parsed(content, reasoning)


def _read_list(part: str, found: Found) -> None:
    try:
        value = read_json(part)
    except ValueError as error:
        found.fail(part, f"the calls are not valid JSON: {error}")
        return
    for each in value if isinstance(value, list) else [value]:
        found.add_object(part, each)


def _read_named(part: str, found: Found) -> None:
    head, _, body = part.partition(ARGUMENTS)
    name, _, given = head.partition(ID)
    try:
        arguments = read_json(body.strip() or "{}")
    except ValueError as error:
        found.fail(part, f"the arguments of {name.strip()[:100]} are not valid JSON: {error}")
        return
    found.add(part, name, arguments, given.strip())


FORMAT = Format(
    parse, (BEGIN,), (BEGIN,), rank=2, tokens=(BEGIN, ID, ARGUMENTS, THINK, THOUGHT), thought=(THINK, THOUGHT)
)
