"""Questions answered with a search tool (Search-R1): the last `<answer>` equals one of the targets as a text.

`substring=true` accepts an answer that contains a target. `match=verl` is verl's search_r1_like_qa_em,
`match=search_r1` Search-R1's own function, which scores the prompt's example too and so needs two answers.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Any

from whet.rewards.answers.characters import ascii_digits
from whet.rewards.answers.extract import after_thoughts, tagged_answer
from whet.rewards.answers.numbers import value_of
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

MOST_TAGS = 10  # of one kind; verl pays a quarter for more
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DASHES = re.compile(r"(?<=\w)[-/_](?=\w)")
_DELETED = {ord(char): None for char in string.punctuation}


def score(
    response: str,
    ground_truth: Any,
    *,
    match: str = "whet",
    substring: bool = False,
    format_score: float = 0.0,
    score: float = 1.0,
) -> Score:
    """`score` for an answer that equals a target, `format_score` for another, 0 without answer tags."""
    check_match(match, "search_em", SCORER.matches)
    if match == "whet":
        said = tagged_answer(after_thoughts(response)) or tagged_answer(response)
        right = said is not None and _is_right(said, accepted(ground_truth), substring)
        spam = response.count("<answer>") > MOST_TAGS or response.count("</answer>") > MOST_TAGS
    else:
        found = _pairs(response)
        said = found[-1] if len(found) > (match == "search_r1") else None
        targets = ground_truth["target"]
        right = said is not None and _is_target(said, targets, substring)
        spam = match == "verl" and not substring
        spam = spam and (response.count("<answer>") > MOST_TAGS or response.count("</answer>") > MOST_TAGS)
    full = score / 4 if spam else score
    overall = full if right else (0.0 if said is None else format_score)
    return {"overall": overall, "accuracy": float(right), "format": float(said is not None)}


def _pairs(text: str) -> list[str]:
    """Contents of answer tags as the originals find them: from an opening tag to the next closing one."""
    found, at = [], 0
    while (start := text.find("<answer>", at)) >= 0:
        close = text.find("</answer>", start)
        if close < 0:
            break
        found.append(text[start + len("<answer>") : close].strip())
        at = close + len("</answer>")
    return found


def _is_target(said: str, targets: str | list[str], substring: bool) -> bool:
    answer = _plain(said)
    wanted = [_plain(each) for each in ([targets] if isinstance(targets, str) else targets)]
    return any(each in answer if substring else each == answer for each in wanted)


def _plain(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_DELETED)).split())


def _is_right(said: str, targets: list[str], substring: bool) -> bool:
    for target in targets:
        ours, theirs = value_of(ascii_digits(said)), value_of(ascii_digits(target))
        if ours is not None and theirs is not None:
            if ours == theirs:
                return True
            continue
        forms, wanted = _forms(said), _forms(target)
        if substring:
            if any(f" {each} " in f" {form} " for form in forms for each in wanted if each):
                return True
        elif forms & wanted - {""}:
            return True
    return False


def _forms(text: str) -> set[str]:
    """An answer without articles, punctuation and accents; joined words also as two."""
    text = unicodedata.normalize("NFKD", ascii_digits(text)).casefold()
    text = "".join(char for char in text if not unicodedata.combining(char))
    forms = set()
    for spelled in (text, _DASHES.sub(" ", text)):
        kept = "".join(char for char in spelled if not unicodedata.category(char).startswith("P"))
        words = " ".join(kept.split())
        forms.add(" ".join(_ARTICLES.sub(" ", words).split()) or words)  # the letter a may be an answer
    return forms


SCORER = Scorer(
    score,
    data_sources=(
        "searchR1_nq",
        "searchR1_triviaqa",
        "searchR1_popqa",
        "searchR1_hotpotqa",
        "searchR1_2wikimultihopqa",
        "searchR1_musique",
        "searchR1_bamboogle",
    ),
    summary="the last `<answer>` equals a target but for case, articles, punctuation; `substring=true`: contains one",
    matches=("verl", "search_r1"),
)
