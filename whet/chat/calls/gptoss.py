"""gpt-oss (harmony): messages on channels, of which those with a recipient are calls."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, read_json
from whet.chat.messages import Parsed

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
_TO = "to=functions."


def parse(text: str) -> Parsed:
    """Parse a turn, which begins behind `<|start|>assistant`; the recipient may stand before or behind the channel."""
    found = Found(text)
    reasoning: list[str] = []
    content: list[str] = []
    if MESSAGE not in text:
        return Parsed(text)
    for part in text.split(START):
        header, mark, body = part.partition(MESSAGE)
        if not mark:
            content.append(header if header.strip() not in ("", "assistant") else "")
            continue
        body = body[: min((place for place in map(body.find, ENDS) if place >= 0), default=len(body))]
        channel = header.partition(CHANNEL)[2].partition(CONSTRAIN)[0].split()[:1]
        if _TO in header:
            _read(header, body, found)
        elif channel == ["analysis"]:
            reasoning.append(body.strip())
        else:
            content.append(body)
    return found.parsed("".join(content), "\n".join(reasoning) if reasoning else None)


def _read(header: str, body: str, found: Found) -> None:
    name = header[header.find(_TO) + len(_TO) :].replace("<", " ").split()[:1]
    try:
        arguments = read_json(body.strip() or "{}")
    except ValueError as error:
        found.fail(body, f"the arguments are not valid JSON: {error}")
        return
    found.add(body, name[0] if name else "", arguments)


FORMAT = Format(
    parse,
    ("<|channel|>", "to=functions."),
    (f" {_TO}", "commentary"),
    rank=3,
    tokens=(START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS),
    is_framed=True,
)
