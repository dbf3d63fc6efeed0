"""Metrics of short answers, against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from whet.evals.metrics import METRICS, Truth, is_closed, label_f1, label_set


def judge(name: str, response: str, answer: Any, extract: tuple[str, ...] = (), **about: Any) -> dict[str, float]:
    return METRICS[name](response, Truth(answer, **about), extract).scores


@pytest.mark.parametrize(
    ("name", "response", "answer", "about", "right"),
    [
        ("text", "<answer>The Liver.</answer>", "liver", {}, 1),
        ("text", "kidney", ["liver", "Kidney"], {}, 1),
        ("text", "kidneys", "kidney", {}, 0),
        ("number", "#### 1,200", "1200.0", {}, 1),
        ("number", r"\boxed{3.14}", "3.1416", {}, 0),
        ("number", r"\boxed{3.14}", "3.1416", {"tolerance": 0.01}, 1),
        ("number", r"\boxed{about 7 cm}", 7, {}, 1),
        ("number", "no idea", "7", {}, 0),
        ("choice", "The answer is (b).", "B", {}, 1),
        ("choice", "b) red", "red", {"choices": ("blue", "red")}, 1),
        ("choice", r"\boxed{Red}", "red", {"choices": ("blue", "red")}, 1),
        ("choice", "red", 1, {"choices": ("blue", "red")}, 1),
        ("choice", "blue", 1, {"choices": ("blue", "red")}, 0),
        ("choice", "", "A", {}, 0),
        ("yes_no", "Yes.", "yes", {}, 1),
        ("yes_no", "No, it is not", True, {}, 0),
        ("yes_no", "no", 0, {}, 1),
    ],
)
def test_accuracy(name: str, response: str, answer: Any, about: dict[str, Any], right: int) -> None:
    assert judge(name, response, answer, **about)["accuracy"] == right


def test_closed_questions_are_told_from_open_ones() -> None:
    assert is_closed(Truth("Yes"))
    assert is_closed(Truth("MRI", choices=("CT", "MRI")))
    assert is_closed(Truth("left", kind="CLOSED"))
    assert not is_closed(Truth("no", kind="OPEN"))
    assert not is_closed(Truth("left lung"))


def test_medical_vqa_of_a_closed_question() -> None:
    assert judge("medical_vqa", "No fracture is seen.", "no") == {"accuracy": 1, "closed_accuracy": 1}
    assert judge("medical_vqa", "B", "right", choices=("left", "right"))["closed_accuracy"] == 1
    assert judge("medical_vqa", "T2", "t2", kind="CLOSED") == {"accuracy": 1, "closed_accuracy": 1}


def test_medical_vqa_of_an_open_question() -> None:
    # true: left, upper, lobe; said: the, left, lobe, of, lung: two in common
    scores = judge("medical_vqa", "The left lobe of lung", "left upper lobe")
    assert scores["open_recall"] == pytest.approx(2 / 3)
    assert scores["open_precision"] == pytest.approx(2 / 5)
    assert scores["open_f1"] == pytest.approx(1 / 2)
    assert scores["open_exact_match"] == scores["accuracy"] == 0
    assert judge("medical_vqa", "The left upper lobe.", "left upper lobe")["accuracy"] == 1
    assert judge("medical_vqa", "", "left upper lobe")["open_recall"] == 0


def test_a_word_counts_as_often_as_it_stands_in_both() -> None:
    assert judge("medical_vqa", "lobe lobe", "lobe")["open_precision"] == pytest.approx(1 / 2)


def test_labels() -> None:
    scores = judge(
        "labels", "<answer>Edema, Cardiomegaly and Pneumonia</answer>", ["edema", "cardiomegaly", "fracture", "mass"]
    )
    assert scores["accuracy"] == 0
    assert scores["label_precision"] == pytest.approx(2 / 3)
    assert scores["label_recall"] == pytest.approx(1 / 2)
    assert scores["label_f1"] == pytest.approx(4 / 7)
    assert judge("labels", "none", [])["label_f1"] == 1
    assert judge("labels", "edema", {"edema": 1, "mass": 0})["accuracy"] == 1
    assert (
        judge("labels", "signs of pleural effusion", "pleural effusion", labels=("edema", "pleural effusion"))[
            "accuracy"
        ]
        == 1
    )


def test_f1_over_a_data_set() -> None:
    pairs = [(label_set("a, b"), label_set("a")), (label_set("b"), label_set("b, c"))]
    # a: 1 of 1 said and 1 true; b: 1 right of 2 said and 1 true; c: 0 right, 1 true
    found = label_f1(pairs)
    assert found["label_micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert found["label_macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
