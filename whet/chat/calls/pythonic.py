"""Llama 3.2, Llama 4 and LFM2: a list of Python calls, `[f(a=1), g(b='x')]`."""

from __future__ import annotations

import ast

from whet.chat.calls.format import Format, Found, split_reasoning
from whet.chat.messages import Parsed

BEGIN, END = "<|tool_call_start|>", "<|tool_call_end|>"
LONGEST = 50_000  # characters: Python's parser takes memory for every one of them
_ENDS = ("<|eot|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>")


def parse(text: str) -> Parsed:
    """Parse a turn; the list is the whole turn, or stands between LFM2's markers. Nothing is evaluated."""
    for end in _ENDS:
        text = text.removesuffix(end)
    reasoning, rest = split_reasoning(text, (BEGIN,))
    before, marked, behind = rest.partition(BEGIN)
    inside, _, after = behind.partition(END) if marked else (rest.strip(), "", "")
    found = Found(text)
    body = inside.strip()
    if not marked and not (body.startswith("[") and body.endswith(")]")):
        return Parsed(rest, reasoning)
    _read(body, found)
    return found.parsed(before + after if marked else "", reasoning)


def _read(body: str, found: Found) -> None:
    if len(body) > LONGEST:
        found.fail(body, f"the calls are longer than {LONGEST} characters")
        return
    try:
        tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        found.fail(body, f"the calls are no list of Python calls: {error}")
        return
    for node in tree.elts if isinstance(tree, ast.List) else [tree]:
        _read_call(node, ast.get_source_segment(body, node) or body, found)


def _read_call(node: ast.expr, source: str, found: Found) -> None:
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        found.fail(source, "a call must be written as name(argument=value)")
        return
    try:
        name = ast.unparse(node.func)
        arguments = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        found.fail(source, f"an argument is no literal: {error}")
        return
    found.add(source, name, arguments)


FORMAT = Format(parse, (BEGIN,), ("[", BEGIN), rank=2, tokens=(BEGIN, END))
