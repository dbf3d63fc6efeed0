"""ReAct text: `Action:` with a name, `Action Input:` with arguments. Sample with `Observation:` as a stop text."""

from __future__ import annotations

from whet.chat.calls.format import Format, Found, read_json, split_reasoning
from whet.chat.messages import Parsed

ACTION, INPUT, OBSERVATION, ANSWER = "Action:", "Action Input:", "Observation:", "Final Answer:"


def parse(text: str) -> Parsed:
    """Parse a turn; input that is no object becomes the argument `input`. A final answer ends the episode."""
    reasoning, rest = split_reasoning(text, (ACTION,))
    rest = rest.partition(OBSERVATION)[0]
    found = Found(text)
    if ANSWER in rest:
        return Parsed(rest.partition(ANSWER)[2].strip(), reasoning)
    content, action, behind = rest.partition(ACTION)
    if not action:
        return Parsed(rest, reasoning)
    name, given, body = behind.partition(INPUT)
    if not given:
        found.fail(behind, f"{ACTION} needs a line {INPUT}")
        return found.parsed(content, reasoning)
    body = body.strip()
    try:
        arguments = read_json(body)
    except ValueError as error:
        if body.startswith("{"):
            found.fail(body, f"{INPUT} is not valid JSON: {error}")
            return found.parsed(content, reasoning)
        arguments = body
    found.add(behind, name, arguments if isinstance(arguments, dict) else {"input": arguments})
    return found.parsed(content, reasoning)


FORMAT = Format(parse, ("Action Input:",), (ACTION,), rank=1, is_framed=True)
