"""Every scorer on labelled answers of odd formats: agreement with the labels is 100 %."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from rewards.scorers import labelled
from rewards.scorers.answer_pairs import RIGHT, WRONG

from whet.rewards.answers.equal import same_answer
from whet.rewards.registry import SCORERS

FEWEST = 30  # labelled cases of a scorer
PAIRS = [*((said, truth, True) for said, truth in RIGHT), *((said, truth, False) for said, truth in WRONG)]


def boxed(form: str) -> list[tuple[Any, ...]]:
    """Answers whose comparison needs no mathematics, in the form that a scorer reads."""
    return [(form.format(said), truth, right) for said, truth, right in PAIRS if "\\" not in said + truth]


TABLES: dict[str, list[tuple[Any, ...]]] = {
    "gsm8k": labelled.GSM8K,
    "math": [*labelled.BOXED, *labelled.STATED],
    "math_dapo": [*labelled.ANSWER_LINES, *boxed("Answer: {}")],
    "prime_math": [*labelled.PRIME, *boxed("\\boxed{{{}}}")],
    "geo3k": labelled.BOXED,
    "r1v": [*labelled.R1V, *boxed("<answer>{}</answer>")],
    "search_em": [(f"<think>x</think><answer>{said}</answer>", {"target": t}, r) for said, t, r in labelled.SEARCH],
    "vqa": labelled.VQA,
    "android_gui": labelled.ANDROID,
}


def disagreements(name: str, cases: Iterable[tuple[Any, ...]], **options: Any) -> list[str]:
    """Cases in which a scorer's accuracy is not the label."""
    score = SCORERS.find(name).score
    found = []
    for response, truth, label in cases:
        accuracy = score(response, truth, **options)["accuracy"]
        if accuracy != pytest.approx(float(label)):
            found.append(f"{response[-80:]!r} against {truth!r}: {accuracy}, labelled {label}")
    return found


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_scorer_agrees_with_its_labels(name):
    assert len(TABLES[name]) >= FEWEST
    assert not (wrong := disagreements(name, TABLES[name])), "\n".join(wrong)


def test_gsm8k_finds_numbers_without_a_marker_where_it_may():
    assert not disagreements("gsm8k", labelled.GSM8K_FLEXIBLE, method="flexible")
    assert not disagreements("gsm8k", labelled.GSM8K, method="strict")


@pytest.mark.parametrize("right", [True, False])
def test_answers_of_odd_formats_are_compared_as_labelled(right):
    pairs = RIGHT if right else WRONG
    assert len(pairs) >= FEWEST
    wrong = [f"{said!r} against {truth!r}" for said, truth in pairs if same_answer(said, truth) is not right]
    assert not wrong, "\n".join(wrong)


def test_every_scorer_of_answers_has_a_table():
    others = {"code", "format", "length", "rlla"}  # have tests of their own
    assert set(SCORERS.names) == set(TABLES) | others
