"""EasyR1's android_gui example: the index of the screen element to choose (or another short action).

`match=easyr1` is EasyR1's function: the first of the characters 0, 1 and 2 anywhere in the response.
"""

from __future__ import annotations

import re
from typing import Any

from whet.rewards.answers.characters import ascii_digits
from whet.rewards.answers.extract import after_thoughts, boxed_answer, tagged_answer
from whet.rewards.answers.numbers import value_of
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

END = 2_000  # characters at the end of a response that may hold the choice
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w])")
_WHOLE = re.compile(r"(?<![\w.])[-+]?\d+(?!\w|\.\d)")
_CHOICES = re.compile(r"[012]")


def score(response: str, ground_truth: Any, *, match: str = "whet") -> Score:
    """1 for the right choice, 0 for another."""
    check_match(match, "android_gui", SCORER.matches)
    if match == "easyr1":
        found = _CHOICES.search(response)
        right = (found[0] if found else "") == ground_truth
    else:
        right = any(_is_right(_choice(response), each) for each in accepted(ground_truth))
    return {"overall": float(right), "accuracy": float(right)}


def _choice(response: str) -> str:
    """The chosen text: in tags, in a box, or what is behind the thoughts."""
    behind = after_thoughts(response)
    return ascii_digits(tagged_answer(behind) or boxed_answer(behind) or behind).strip()[-END:]


def _is_right(said: str, truth: str) -> bool:
    truth = ascii_digits(truth).strip()
    wanted = value_of(truth)
    if wanted is None:
        return bool(truth) and said.casefold() == truth.casefold()
    # In running text an index is a whole number: "I choose 2. Score: 1.0" has chosen 2.
    alone = bool(_NUMBER.fullmatch(said)) or wanted != int(wanted)
    numbers = (_NUMBER if alone else _WHOLE).findall(said)
    return bool(numbers) and value_of(numbers[-1]) == wanted


SCORER = Scorer(
    score,
    data_sources=("android_gui", "number_game"),
    summary="the last whole number of the response is the index to choose",
    matches=("easyr1",),
)
