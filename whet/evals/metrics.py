"""Scores of short answers that need no program of the user's: choices, yes and no, numbers, texts, labels.

Questions of medical VQA are closed (yes or no, or one of a few choices: accuracy) or open (exact match, and recall, F1
and precision of the true answer's words, as LLaVA-Med reports them: Li et al., 2023). Several labels at once are scored
by the overlap of two sets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.evals.extract import EXTRACTORS, as_number, extract, letter, normal, whole, yes_no

WORDS = re.compile(r"[a-z0-9]+(?:\.[0-9]+)?")
SEPARATORS = re.compile(r"[,;\n|]|\band\b|(?:^|\s)[-*•]\s")
CLOSED = ("closed", "yes/no", "yesno", "binary", "choice")


@dataclass(frozen=True, slots=True)
class Truth:
    """Truth of a question, as metrics see it."""

    answer: Any
    choices: tuple[str, ...] = ()
    kind: str = ""  # what the data says about it: open or closed
    labels: tuple[str, ...] = ()  # every label there is
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    """Extracted answer of a response and its score."""

    said: str | None
    scores: dict[str, float]
    kind: str = ""  # closed or open, where a data set has both


def text_match(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Score 1 for the true text; the truth may be a list of accepted texts."""
    said = extract(response, extractors or ("boxed", "answer", "text"))
    options = truth.answer if isinstance(truth.answer, list | tuple) else [truth.answer]
    right = said is not None and normal(said) in {normal(str(each)) for each in options}
    return Judged(said, {"accuracy": float(right)})


def number_match(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Score 1 for the true number, within the relative `tolerance`."""
    found = extract(response, extractors or ("boxed", "answer", "marked", "number"))
    said = found if found is None or as_number(normal(found)) is not None else EXTRACTORS["number"](found)
    value = as_number(normal(said)) if said is not None else None
    true = as_number(normal(EXTRACTORS["number"](str(truth.answer)) or ""))
    if true is None or value is None:
        return Judged(said, {"accuracy": 0.0})
    return Judged(said, {"accuracy": float(abs(float(value - true)) <= truth.tolerance * abs(float(true)))})


def choice_match(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Score 1 if the right choice is named, by its letter or its text."""
    right = _letter_of(truth)
    said = extract(response, extractors) if extractors else None
    said = said if said is not None else _choice(response, truth.choices)
    if said is not None and len(said.strip()) > 1:
        said = _by_text(said, truth.choices) or letter(said)
    return Judged(
        said and said.strip().upper(), {"accuracy": float(said is not None and said.strip().upper() == right)}
    )


def yes_no_match(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Score 1 for the right one of yes and no."""
    found = extract(response, extractors) if extractors else None
    said = yes_no(found) if found is not None else yes_no(response)
    true = {"1": "yes", "0": "no", "true": "yes", "false": "no"}.get(
        normal(str(truth.answer)), normal(str(truth.answer))
    )
    return Judged(said, {"accuracy": float(said is not None and said == true)})


def medical_vqa(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Closed questions by accuracy; open ones by exact match, and by recall, precision and F1 of words."""
    if is_closed(truth):
        by = (
            choice_match
            if truth.choices
            else yes_no_match
            if normal(str(truth.answer)) in ("yes", "no")
            else text_match
        )
        judged = by(response, truth, extractors)
        return Judged(judged.said, {**judged.scores, "closed_accuracy": judged.scores["accuracy"]}, "closed")
    found = extract(response, extractors or ("boxed", "answer", "text"))
    said = found if found is not None else response
    true, written = _words(str(truth.answer)), _words(said)
    common = sum((Counter(true) & Counter(written)).values())
    exact = float(bool(true) and normal(said) == normal(str(truth.answer)))
    scores = {"accuracy": exact, "open_exact_match": exact, **_overlap("open", common, len(written), len(true))}
    return Judged(found, scores, "open")


def labels_match(response: str, truth: Truth, extractors: Sequence[str]) -> Judged:
    """Two sets of labels: the same (accuracy), and precision, recall and F1 of their overlap."""
    found = extract(response, extractors or ("boxed", "answer", "text"))
    said = label_set(found or "", truth.labels)
    true = label_set(truth.answer, truth.labels)
    scores = {"accuracy": float(said == true), **_overlap("label", len(said & true), len(said), len(true))}
    if not said and not true:  # nothing to find, and nothing found
        scores |= dict.fromkeys(scores, 1.0)
    return Judged(", ".join(sorted(said)) if found is not None else None, scores)


Metric = Callable[[str, Truth, Sequence[str]], Judged]
METRICS: dict[str, Metric] = {
    "text": text_match,
    "number": number_match,
    "choice": choice_match,
    "yes_no": yes_no_match,
    "medical_vqa": medical_vqa,
    "labels": labels_match,
}


def is_closed(truth: Truth) -> bool:
    """Return True for a closed question: as its data says, else one with choices or with the answer yes or no."""
    if truth.kind:
        return normal(truth.kind) in CLOSED
    return bool(truth.choices) or normal(str(truth.answer)) in ("yes", "no")


def label_set(value: Any, known: Sequence[str] = ()) -> frozenset[str]:
    """The labels that a list, a mapping of 0 and 1, or a text names; with `known` ones, those of them that it names."""
    if isinstance(value, Mapping):
        value = [name for name, given in value.items() if given in (1, True, "1", "yes")]
    if isinstance(value, str) and known:
        text = f" {' '.join(_words(value))} "
        return frozenset(normal(each) for each in known if f" {' '.join(_words(each))} " in text)
    parts = SEPARATORS.split(value) if isinstance(value, str) else list(value or [])
    found = {normal(str(each)) for each in parts}
    return frozenset(found - {"", "none"})


def label_f1(pairs: Sequence[tuple[frozenset[str], frozenset[str]]]) -> dict[str, float]:
    """Micro and macro F1 over a data set of (said, true) sets; a label that is nowhere is left out."""
    labels = sorted({label for said, true in pairs for label in said | true})
    counts = {each: [0, 0, 0] for each in labels}  # right, said, true
    for said, true in pairs:
        for each in said | true:
            counts[each][0] += each in said and each in true
            counts[each][1] += each in said
            counts[each][2] += each in true
    totals = [sum(column) for column in zip(*counts.values())] or [0, 0, 0]
    each_f1 = [2 * right / (said + true) for right, said, true in counts.values()]
    micro = 2 * totals[0] / (totals[1] + totals[2]) if totals[1] + totals[2] else 1.0
    return {"label_micro_f1": micro, "label_macro_f1": sum(each_f1) / len(each_f1) if each_f1 else 1.0}


def _overlap(name: str, common: int, said: int, true: int) -> dict[str, float]:
    precision, recall = (common / total if total else 0.0 for total in (said, true))
    f1 = 2 * precision * recall / (precision + recall) if common else 0.0
    return {f"{name}_precision": precision, f"{name}_recall": recall, f"{name}_f1": f1}


def _letter_of(truth: Truth) -> str:
    """The right letter, where the truth is a letter, the text of a choice, or its number."""
    answer = truth.answer
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(truth.choices):
        return chr(ord("A") + answer)
    by_text = _by_text(str(answer), truth.choices)
    return by_text or (letter(str(answer)) or str(answer)).upper()


def _by_text(text: str, choices: Sequence[str]) -> str | None:
    names = [normal(each) for each in choices]
    said = normal(text)
    return chr(ord("A") + names.index(said)) if said in names else None


def _choice(response: str, choices: Sequence[str]) -> str | None:
    inner = extract(response, ("boxed", "answer"))
    if found := _by_text(inner or whole(response) or "", choices):
        return found
    return letter(response)


def _words(text: str) -> list[str]:
    return WORDS.findall(text.lower())
