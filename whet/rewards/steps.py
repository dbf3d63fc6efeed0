"""Steps of a response, and rewards that are earned at their ends.

A step ends with the token in which its separator ends. Rewards are placed by cutting segments there: tokens, mask,
log-probs and versions stay as they are, and a segment's reward lies on its last token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from math import prod

from whet.types import Sample, Segment

BLANK_LINE = "\n\n"
Piece = Callable[[int], str]  # the text of one token; nothing for special ones


def step_ends(sample: Sample, piece: Piece, separator: str = BLANK_LINE) -> list[int]:
    """Return the number of response tokens up to the end of each step, growing.

    Only what the policy wrote has steps; each of its turns ends one. A turn without any text is one step.
    """
    ends, start = [], 0
    for by_model, group in groupby(sample.segments, key=lambda segment: segment.by_model):
        ids = [token for segment in group for token in segment.ids]
        if by_model and ids:
            ends += [start + end for end in _ends_of([piece(token) for token in ids], separator)]
        start += len(ids)
    return ends


def _ends_of(pieces: Sequence[str], separator: str) -> list[int]:
    """Return the ends of the steps of one turn, given the texts of its tokens."""
    text = "".join(pieces)
    # 1. Characters at which steps end: behind each run of separators that text stands before.
    cuts, start = [], 0
    for found in _runs(separator).finditer(text):
        if text[start : found.start()].strip():
            cuts.append(found.end())
            start = found.end()
    # 2. The token that holds the last character of each step.
    ends: list[int] = []
    token, length = 0, 0
    for cut in cuts:
        while length < cut:
            length += len(pieces[token])
            token += 1
        if not ends or ends[-1] != token:
            ends.append(token)
    # 3. What stands behind the last separator is a step too, if it says anything.
    if not ends or text[start:].strip():
        if ends and ends[-1] == len(pieces):
            return ends
        ends.append(len(pieces))
    return ends


@lru_cache(maxsize=16)
def _runs(separator: str) -> re.Pattern[str]:
    return re.compile(f"(?:{re.escape(separator)})+")


def earn(sample: Sample, rewards: Mapping[int, float]) -> None:
    """Have the sample earn rewards by the number of its tokens up to where each is earned."""
    segments, start = [], 0
    for segment in sample.segments:
        end = start + len(segment.ids)
        cuts = sorted(cut for cut in rewards if start < cut <= end)
        segments += _cut(segment, start, {cut: rewards[cut] for cut in cuts})
        start = end
    sample.segments = segments


def _cut(segment: Segment, start: int, rewards: Mapping[int, float]) -> list[Segment]:
    """Cut a segment, whose first token is the response's number `start`, behind each reward; none is lost or new."""
    end = start + len(segment.ids)
    if not rewards:
        return [segment]
    bounds = [start, *rewards, *([] if end in rewards else [end])]
    pieces = []
    for first, last in pairwise(bounds):
        own = slice(first - start, last - start)
        earned = rewards.get(last)
        if last == end and segment.reward is not None:
            earned = segment.reward + (earned or 0.0)
        media = segment.media if first == start else None
        pieces.append(
            replace(segment, ids=segment.ids[own], log_probs=segment.log_probs[own], reward=earned, media=media)
        )
    return pieces


def reduced(scores: Sequence[float], how: str) -> float:
    """Make one number of the scores of all steps."""
    if how == "product":
        return prod(scores)
    total = sum(scores)
    return {"mean": total / len(scores), "sum": total, "min": min(scores), "last": scores[-1]}[how]
