"""Answers of resampling for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.tracking.lines import visible


def as_text(found: Mapping[str, Any]) -> str:
    """Return an answer in lines."""
    lines = [visible(note) for note in found["notes"]]
    lines += {"again": _again, "branch": _branch, "tokens": _tokens}[found["kind"]](found)
    return "\n".join(lines)


def _again(found: Mapping[str, Any]) -> list[str]:
    drawn = found["drawn"]
    if found["equal"]:
        return [f"equal: {len(drawn)} of {len(drawn)} tokens ({found['compared']} compared)", visible(found["text"])]
    place = found["first_difference"]
    if place is None:
        return [f"different ({found['compared']} compared)", visible(found["text"])]
    recorded = found["recorded"] or []
    before, now = _named(recorded, place), _named(drawn, place)
    return [f"different from token {place + 1} on: recorded {before}, drawn {now}", visible(found["text"])]


def _named(tokens: Sequence[Mapping[str, Any]], place: int) -> str:
    return f"{tokens[place]['id']} {tokens[place]['text']!r}" if place < len(tokens) else "nothing"


def _branch(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for number, each in enumerate(found["continuations"], 1):
        reward = "no score" if each["reward"] is None else f"reward {each['reward']:.4g}"
        lines += ["", f"{number}: {reward}, {len(each['tokens'])} tokens, {each['finish']}", visible(each["text"])]
    return lines


def _tokens(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for place, (token, entropy, others) in enumerate(zip(found["tokens"], found["entropies"], found["alternatives"])):
        listed = "  ".join(f"{each['text']!r} {each['log_prob'] or 0.0:.3f}" for each in others)
        value = "–" if token["log_prob"] is None else f"{token['log_prob']:.3f}"
        lines.append(f"{place:>5} {token['text']!r:<14} {value:>8} entropy {entropy or 0.0:.3f}   {listed}")
    return lines
