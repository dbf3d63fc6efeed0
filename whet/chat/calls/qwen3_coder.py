"""Qwen 3 Coder, Qwen 3.5 and Nemotron 3: functions and parameters as tags, with values as they are."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, blocks, split_reasoning
from whet.chat.messages import Parsed

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


def parse(text: str) -> Parsed:
    """Parse a turn; values are texts, which the tool's schema gives their types."""
    reasoning, rest = split_reasoning(text, (BEGIN, FUNCTION))
    found, content = Found(text), []
    for before, inside, closed in blocks(rest, BEGIN, END):
        content.append(before)
        if inside is not None:
            _read(inside, closed, found)
    return found.parsed("".join(content), reasoning)


def _read(inside: str, closed: bool, found: Found) -> None:
    start = inside.find(FUNCTION)
    named = inside.find(">", start) if start >= 0 else -1
    end = inside.find(FUNCTION_END, named) if named >= 0 else -1
    if named < 0 or end < 0:
        missing = (
            "a call needs <function=name> and </function>" if closed else f"the call was not finished: {END} is missing"
        )
        found.fail(inside, missing)
        return
    arguments: dict[str, str] = {}
    place = named + 1
    while (begin := inside.find(PARAMETER, place, end)) >= 0:
        key_end = inside.find(">", begin, end)
        value_end = inside.find(PARAMETER_END, key_end, end) if key_end >= 0 else -1
        if value_end < 0:
            found.fail(inside, f"a parameter is not closed with {PARAMETER_END}")
            return
        value = inside[key_end + 1 : value_end]
        arguments[inside[begin + len(PARAMETER) : key_end].strip()] = value.removeprefix("\n").removesuffix("\n")
        place = value_end + len(PARAMETER_END)
    found.add(inside, inside[start + len(FUNCTION) : named], arguments)


FORMAT = Format(
    parse,
    ("<function=", "<parameter="),
    (BEGIN,),
    rank=2,
    tokens=(BEGIN, END),
    forced=f"{BEGIN}\n{FUNCTION}",
    named=">\n",
)
