"""Visual question answering with ten human answers: the mean, over the ten, of min(1, matches among the others / 3).

`match=vqa` is the official evaluation, which normalises texts only where the ten answers differ. A single truth scores
1 for the same text in normal form.
"""

from __future__ import annotations

import re
from typing import Any

from whet.rewards.answers.characters import ascii_digits
from whet.rewards.answers.extract import after_thoughts, boxed_answer, tagged_answer
from whet.rewards.answers.truths import accepted
from whet.rewards.registry import Score, Scorer, check_match

LONGEST = 300  # characters; more is no answer
_NUMBERS = {
    "none": "0", "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10",
}  # fmt: skip
_ARTICLES = ("a", "an", "the")
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_DIGIT_COMMA = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
_PERIODS = 32  # that the official evaluation removes at most
_NOT = "ai are ca could did does do had has have is might must need ought sha should was were wo would"
_HAVE = "could might must not should they we what where who would you"
_WILL = "how it somebody someone something they what who why you"
_IS = "he how somebody someone that there what when where who why"
_WOULD = "he how it someone something there they where who you"
_ARE = "there they what why you"
_NOT_HAVE = "could had might should would"
_WOULD_HAVE = "he it she somebody someone something there they we who you"
CONTRACTIONS = {
    **{f"{word}nt": f"{word}n't" for word in _NOT.split()},
    **{f"{word}ve": f"{word}'ve" for word in _HAVE.split()},
    **{f"{word}ll": f"{word}'ll" for word in _WILL.split()},
    **{f"{word}s": f"{word}'s" for word in _IS.split()},
    **{f"{word}d": f"{word}'d" for word in _WOULD.split()},
    **{f"{word}re": f"{word}'re" for word in _ARE.split()},
    **{form: f"{word}n't've" for word in _NOT_HAVE.split() for form in (f"{word}nt've", f"{word}n'tve")},
    **{form: f"{word}'d've" for word in _WOULD_HAVE.split() for form in (f"{word}d've", f"{word}'dve")},
    **dict.fromkeys(("yall'll", "y'allll"), "y'all'll"),
    **dict.fromkeys(("yall'd've", "y'alld've", "y'all'dve"), "y'all'd've"),
    **dict.fromkeys(("ow's'at", "'ows'at", "'ow'sat"), "'ow's'at"),
    "somebody'd": "somebodyd",  # the official list has it so
    "maam": "ma'am",
    "oclock": "o'clock",
    "twas": "'twas",
    "yall": "y'all",
}


def score(response: str, ground_truth: Any, *, match: str = "whet") -> Score:
    """The accuracy of one question, between 0 and 1."""
    check_match(match, "vqa", SCORER.matches)
    if match == "vqa":
        answers = [_one_line(each) for each in ground_truth]
        said = _one_line(response)
        if len(set(answers)) > 1:
            answers, said = [_normal(each) for each in answers], _normal(said)
        accuracy = _accuracy(said, answers)
    else:
        said = _answer(response)
        answers = [_normal(_one_line(ascii_digits(each))) for each in accepted(ground_truth)]
        normal = _normal(_one_line(ascii_digits(said)))
        few = len(answers) < 4  # a single truth, or its synonyms
        accuracy = (float(normal in answers) if few else _accuracy(normal, answers)) if normal else 0.0
    return {"overall": accuracy, "accuracy": accuracy}


def _answer(response: str) -> str:
    """Return a model's answer: in tags, in a box, or everything after its thoughts."""
    behind = after_thoughts(response)
    said = tagged_answer(behind) or boxed_answer(behind) or behind.strip()
    return said if len(said) <= LONGEST else ""


def _accuracy(said: str, answers: list[str]) -> float:
    matches = [each == said for each in answers]
    return sum(min(1.0, (sum(matches) - own) / 3) for own in matches) / len(answers)


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _normal(text: str) -> str:
    """Lower case without articles and punctuation, number words as digits, contractions with their apostrophe."""
    joined = _DIGIT_COMMA.search(text) is not None
    plain = text
    for sign in _PUNCTUATION:
        beside_blank = f"{sign} " in text or f" {sign}" in text
        plain = plain.replace(sign, "" if beside_blank or joined else " ")
    plain = _PERIOD.sub("", plain, count=_PERIODS)
    words = [_NUMBERS.get(word, word) for word in plain.lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


SCORER = Scorer(
    score,
    data_sources=("vqa*", "VQA*", "HuggingFaceM4/VQAv2", "lmms-lab/VQAv2", "lmms-lab/textvqa"),
    summary="VQA's accuracy against ten human answers (1 for the same text where there is one truth)",
    matches=("vqa",),
)
