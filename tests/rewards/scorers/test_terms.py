"""Scorers without an answer of their own: the form and the length of a response, and tool calls."""

# ruff: noqa: E501

from __future__ import annotations

import json

import pytest

from whet.errors import UserError
from whet.rewards.registry import SCORERS

BOX, TAGS = "<think>a</think> so \\boxed{5}", "<think>a</think>\n<answer>5</answer>"
FORMS = [
    (BOX, "think_box", True), (TAGS, "think_box", False), (f"Sure! {BOX}", "think_box", False), (BOX + "\n", "think_box", True),
    ("<think>\\boxed{5}</think>", "think_box", False), ("\\boxed{5}", "think_box", False), ("<think>a</think>\\boxed{}", "think_box", False),
    ("<think>a</think><think>b</think>\\boxed{5}", "think_box", False), ("<think>a\\boxed{5}", "think_box", False), ("", "think_box", False),
    ("<think>a</think>\\boxed{5", "think_box", False), (TAGS, "think_answer", True), (BOX, "think_answer", False), (TAGS + "\n", "think_answer", True),
    (TAGS + " done", "think_answer", False), ("<think>a</think> so <answer>5</answer>", "think_answer", False), (TAGS + TAGS, "think_answer", False),
    ("<answer>5</answer><think>a</think>", "think_answer", False), ("<think>a</think><answer>5", "think_answer", False), ("5", "think_answer", False),
    ("<think>a</think> 5", "think", True), ("<think>a</think>", "think", False), ("<think>a", "think", False), ("a</think> 5", "think", False),
    ("a \\boxed{5}", "box", True), ("a \\boxed{}", "box", False), ("a 5", "box", False), ("x <answer>5</answer> y", "answer", True),
    ("</answer>5<answer>", "answer", False), ("<answer>5</answer><answer>6</answer>", "answer", False), ("<answer>5", "answer", False), ("5", "answer", False),
]  # fmt: skip
LENGTHS = [
    (n, 100, 40, w) for n, w in [(0, 0), (50, 0), (60, 0), (61, -0.025), (80, -0.5), (100, -1), (101, -1), (500, -1)]
]
LENGTHS += [(n, 10, 10, -n / 10) for n in range(11)] + [(n, 8, 4, min(0, -(n - 4) / 4)) for n in range(9)]
LENGTHS += [(n, 1, 1, -min(n, 1)) for n in range(4)]
CALL = {"name": "w", "parameters": {"city": "Rome"}}


def called(*calls: object, think: str = "x") -> str:
    return f"<think>{think}</think>\n<tool_call>\n" + "\n".join(json.dumps(each) for each in calls) + "\n</tool_call>"


RLLA = [
    (called(CALL), 4.0), (called({"name": "w", "parameters": {"city": "Oslo"}}), 2.0), (called({"name": "z", "parameters": {}}), -2.0),
    ("<think>y</think>\n<response>hi</response>", -3.0), ("<think>y</think>\n<tool_call>\n{oops\n</tool_call>", -2.0), ("", -3.0),
    (called(CALL, CALL), 1 + 6 * (0.5 + 2) / 3 - 3), (called(), -2.0), ("x" + called(CALL), 3.0), (called(CALL) + "x", 3.0), (called(3), -2.0),
    (called({"name": "w"}), -2.0), (called({"name": "w", "parameters": {}}), 1 + 6 * 1 / 3 - 3), (called({"name": "w", "parameters": []}), -2.0),
    (called({"name": "w", "parameters": {"city": "Rome", "day": 1}}), 1 + 6 * (1 + 0.5 + 1) / 3 - 3), (f"<|im_start|>assistant\n{called(CALL)}<|im_end|>", 4.0),
    (f"<|start_header_id|>assistant<|end_header_id|>\n{called(CALL)}<|eot_id|>", 4.0), (called(CALL, think=""), 4.0), ("<tool_call></tool_call>", -3.0),
    ("<think>a</think><tool_call>\n" + json.dumps(CALL) + "\n</tool_call>", 3.0), (called({"name": None, "parameters": {}}), -2.0), ("[" * 5000, -3.0),
    ("<think>a</think>\n<tool_call>\n" + "[" * 5000 + "\n</tool_call>", -2.0), (called(CALL).replace("\n", "\r\n"), 3.0), ("<tool_call>" * 5, -3.0), (called("w"), -2.0),
    (called({"name": "w", "parameters": {"city": ["Rome"]}}), 1 + 6 * 2 / 3 - 3), (called({**CALL, "id": 1}), 1 + 6 * 3 / 3 - 3), (called(None), -2.0), (called({"name": "W", "parameters": {"city": "Rome"}}), -2.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "form", "right"), FORMS)
def test_the_form_of_a_response(text, form, right):
    assert SCORERS.find("format").score(text, form=form)["overall"] == float(right)


def test_there_are_enough_labelled_cases():
    assert min(len(FORMS), len(LENGTHS), len(RLLA)) >= 30


def test_the_length_of_a_response():
    score = SCORERS.find("length").score
    for tokens, limit, buffer, wanted in LENGTHS:
        given = score("x", response_length=tokens, max_response_length=limit, overlong_buffer_length=buffer)
        assert given["overall"] == pytest.approx(wanted), (tokens, limit, buffer)
    assert score("x", response_length=15, target_length=10)["overall"] == -0.5


@pytest.mark.parametrize("options", [{}, {"max_response_length": 5, "overlong_buffer_length": 6}, {"target_length": 0}])
def test_a_length_term_without_sensible_numbers_is_refused(options):
    with pytest.raises(UserError, match="length"):
        SCORERS.find("length").score("x", **options)


def test_tool_calls_score_by_what_they_share_with_the_true_ones():
    score = SCORERS.find("rlla").score
    wrong = [(text, score(text, called(CALL))["overall"], wanted) for text, wanted in RLLA]
    assert not [each for each in wrong if each[1] != pytest.approx(each[2])]


def test_a_truth_without_calls_scores_the_form_alone():
    score = SCORERS.find("rlla").score
    truth = "<think>a</think>\n<response>ok</response>"
    assert score("<think>y</think>\n<response>hi</response>", truth)["overall"] == 1.0
    assert score("hi", truth)["overall"] == 0.0
