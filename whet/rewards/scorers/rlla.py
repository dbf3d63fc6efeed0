"""Tool calls (ToolRL's rlla data, GDPO): the form of the response, and how far its calls are the true ones.

Format is 1 or 0. Calls score between −3 and 3: overlap of tool names, then for every true call the overlap of argument
names and the number of equal values. `match=verl` is verl's function, which knows chat marks of two models only.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from whet.rewards.registry import Score, Scorer, check_match

MOST = 3.0  # for calls that are the true ones; none of them is -MOST
MOST_CALLS = 100  # of a response that are read
_MARKS = {
    "llama": ("<|start_header_id|>assistant<|end_header_id|>", "<|eot_id|>"),
    "qwen": ("<|im_start|>assistant", "<|im_end|>"),
}


def score(response: str, ground_truth: str, *, match: str = "whet", extra_info: dict[str, Any] | None = None) -> Score:
    """Format plus calls."""
    check_match(match, "rlla", SCORER.matches)
    if match == "verl":
        text = _cut(response, str((extra_info or {}).get("experiment_name", "")))
    else:
        text = response
        for start, end in _MARKS.values():
            text = text.rpartition(start)[2].partition(end)[0]
        text = text.strip()
    form = float(_has_form(text, ground_truth))
    calls = _score_calls(text, ground_truth) if "<tool_call>" in ground_truth else 0.0
    return {"overall": form + calls, "format": form, "calls": calls}


def _cut(response: str, experiment: str) -> str:
    model = next((name for name in _MARKS if name in experiment), None)
    if model is None:
        raise NotImplementedError(f"Unknown model name: {experiment}")
    start, end = _MARKS[model]
    return response.rpartition(start)[2].partition(end)[0].strip()


def _has_form(text: str, truth: str) -> bool:
    """True if the response has the tags of the truth, each once, in their order, and nothing around them."""
    needs_call, needs_text = "<tool_call>" in truth, "<response>" in truth
    tags = ["tool_call"] * needs_call + ["response"] * needs_text
    if any(text.count(f"<{tag}>") != 1 or text.count(f"</{tag}>") != 1 for tag in tags):
        return False
    ends = {(False, False): "</think>", (True, False): "\n</tool_call>"}.get((needs_call, needs_text), "</response>")
    if not text.startswith("<think>") or not text.removesuffix("\n").endswith(ends):
        return False
    at = len("<think>")
    steps = ["</think>\n<tool_call>\n"] if needs_call else []
    if needs_text:
        steps.append("\n</tool_call>\n<response>" if needs_call else "</think>\n<response>")
    for step in steps:
        at = text.find(step, at)
        if at < 0:
            return False
        at += len(step)
    return at <= len(text.removesuffix("\n")) - len(ends)


def _score_calls(text: str, truth: str) -> float:
    wanted = _calls(truth)
    if "<tool_call>" not in text or "</tool_call>" not in text:
        return -MOST
    try:
        given = _calls(text)
        if wanted == given:
            return MOST
        return _overlap_of_calls(wanted, given)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # calls that are no JSON of calls
        return -MOST


def _calls(text: str) -> list[Any]:
    inner = text.split("<tool_call>")[1].split("</tool_call>")[0].strip()
    return [json.loads(line) for line in inner.split("\n")[:MOST_CALLS]]


def _overlap_of_calls(wanted: list[Any], given: list[Any]) -> float:
    total, possible = _overlap([call["name"] for call in wanted], [call["name"] for call in given]), 1.0
    used: set[int] = set()
    for call in wanted:
        arguments = call["parameters"]
        possible += 1 + len(arguments)
        best, chosen = 0.0, None
        for at, other in enumerate(given):
            if at in used or other["name"] != call["name"]:
                continue
            theirs = other["parameters"]
            equal = sum(1.0 for name, value in arguments.items() if name in theirs and theirs[name] == value)
            points = _overlap(list(arguments), list(theirs.keys())) + equal
            if points > best:
                best, chosen = points, at
        if chosen is not None:
            used.add(chosen)
            total += best
    return 2 * MOST * total / possible - MOST


def _overlap(ours: list[str], theirs: list[str]) -> float:
    """Shared items over all items, as multisets; 1 for two empty lists."""
    if ours == theirs:
        return 1.0
    shared = (Counter(ours) & Counter(theirs)).total()
    union = len(ours) + len(theirs) - shared
    return shared / union if ours and theirs and union else 0.0


SCORER = Scorer(
    score,
    data_sources=("rlla*",),
    summary="tool calls: tags, names, arguments and values against the true calls, between −3 and 4",
    matches=("verl",),
)
