"""Llama 3.1 to 3.3: a turn that is an object with name and parameters, or a list of Python calls."""

from __future__ import annotations

import json

from whet.chat.calls import pythonic
from whet.chat.calls.format import Format, Found, split_reasoning
from whet.chat.messages import Parsed

TAG = "<|python_tag|>"
_ENDS = ("<|eot_id|>", "<|eom_id|>")
_DECODER = json.JSONDecoder()


def parse(text: str) -> Parsed:
    """Parse a turn; several objects may stand one behind the other, with `;` or white space between them."""
    for end in _ENDS:
        text = text.removesuffix(end)
    reasoning, rest = split_reasoning(text, (TAG,))
    before, tag, behind = rest.partition(TAG)
    body = (behind if tag else rest).strip()
    found = Found(text)
    if body.startswith("["):
        listed = pythonic.parse(body)
        if listed.calls or listed.bad:
            return Parsed(before.strip() if tag else "", reasoning, listed.calls, listed.bad)
    if not body.startswith("{") or '"name"' not in body[:LONG_NAME]:
        return Parsed(rest.replace(TAG, ""), reasoning)
    _read(body, found)
    return found.parsed(before if tag else "", reasoning)


LONG_NAME = 200  # characters at the beginning of an object within which a call names itself


def _read(body: str, found: Found) -> None:
    place = 0
    while place < len(body):
        try:
            value, end = _DECODER.raw_decode(body, place)
        except (ValueError, RecursionError) as error:
            found.fail(body[place:], f"the call is not valid JSON: {error}")
            return
        found.add_object(body[place:end], value)
        while end < len(body) and body[end] in "; \n\t\r,":
            end += 1
        place = end


FORMAT = Format(
    parse,
    ("<|eot_id|>", '"parameters"'),
    ("{", TAG),
    rank=1,
    tokens=(TAG,),
    forced='{"name": "',
    named='", "parameters": ',
)
