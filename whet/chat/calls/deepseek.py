"""DeepSeek V3, R1 and V3.1: calls between markers of their own."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, blocks, read_json, split_reasoning
from whet.chat.messages import Parsed

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
BEGIN, END, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_EOS = "<｜end▁of▁sentence｜>"


def parse(text: str) -> Parsed:
    """Parse a turn; V3 writes `function`, the name and a fenced block, V3.1 the name and the arguments."""
    reasoning, rest = split_reasoning(text.removesuffix(_EOS), (SECTION, BEGIN))
    found = Found(text)
    content, section, behind = rest.partition(SECTION)
    calls, _, after = behind.partition(SECTION_END)
    for _, inside, closed in blocks(calls, BEGIN, END):
        if inside is not None and closed:
            _read(inside, found)
        elif inside is not None:
            found.fail(inside, f"the call was not finished: {END} is missing")
    if section and not found.calls and not found.bad:
        found.fail(behind, f"there is no call behind {SECTION}")
    return found.parsed(content + after, reasoning)


def _read(inside: str, found: Found) -> None:
    first, _, second = inside.partition(SEPARATOR)
    name, body = (first, second)
    if first.strip() == "function":
        name, _, fenced = second.partition("\n")
        body = fenced.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        arguments = read_json(body.strip() or "{}")
    except ValueError as error:
        found.fail(inside, f"the arguments of {name.strip()[:100]} are not valid JSON: {error}")
        return
    found.add(inside, name, arguments)


FORMAT = Format(
    parse, ("<｜tool▁call▁begin｜>",), (SECTION,), rank=2, tokens=(SECTION, SECTION_END, BEGIN, END, SEPARATOR)
)
