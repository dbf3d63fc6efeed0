"""Hostile responses: scorers answer in bounded time and memory, and pay for none of them."""

from __future__ import annotations

import threading
import time

import pytest

from whet.rewards.answers.process import MathsError, maths
from whet.rewards.registry import SCORERS

SIZE = 1_000_000
SECONDS = 30.0  # far above what a slow machine needs, far below what quadratic time takes
HOSTILE = {
    "letters": "a" * SIZE,
    "spaces": "1" + " " * SIZE + "1",
    "open braces": "\\boxed{" + "{" * SIZE,
    "nested boxes": "\\boxed{" * (SIZE // 7),
    "closed boxes": "\\boxed{1}" * (SIZE // 9),
    "deep box": "\\boxed{" * 2000 + "1" + "}" * 2000,
    "answer tags": "<answer>" * (SIZE // 8),
    "closing tags": "</answer>" * (SIZE // 9),
    "think tags": "</think>" * (SIZE // 8),
    "hashes": "#" * SIZE,
    "markers": "#### " * (SIZE // 5),
    "dollars": "$" * SIZE,
    "answers": "answer is " * (SIZE // 10),
    "colons": "Answer:" * (SIZE // 7),
    "backslashes": "\\" * SIZE,
    "digits": "\\boxed{" + "9" * SIZE + "}",
    "commas": "\\boxed{" + "1," * (SIZE // 2) + "}",
    "nul": "\0" * SIZE,
    "fractions": "\\boxed{" + "\\frac" * 2000 + "}",
    "fences": "```python\n" * (SIZE // 10),
    "surrogates": "\\boxed{\ud800}",
    "empty": "",
}
ANSWERS = [name for name in SCORERS.names if name not in ("code", "length")]


@pytest.mark.parametrize("name", ANSWERS)
def test_hostile_responses_are_scored_in_time_and_not_paid(name):
    scorer, truth = SCORERS.find(name), {"target": ["73"]} if name == "search_em" else "73"
    began = time.monotonic()
    for kind, response in HOSTILE.items():
        assert scorer.score(response, truth).get("accuracy", 0.0) == 0.0, kind
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("name", ["geo3k", "r1v", "math_dapo", "android_gui", "gsm8k", "vqa", "search_em"])
def test_hostile_responses_are_scored_in_time_as_the_originals_do(name):
    scorer = SCORERS.find(name)
    truth = {"target": ["73"]} if name == "search_em" else ["73"] * 10 if name == "vqa" else "73"
    began = time.monotonic()
    for kind in ("spaces", "answer tags", "closing tags", "backslashes", "colons"):
        scorer.score(HOSTILE[kind], truth, match=scorer.matches[0])
    assert time.monotonic() - began < 3 * SECONDS  # some comparisons take the five seconds that they may


@pytest.mark.parametrize("expression", ["9^{9^{9^{9}}}", "10^{10^{10}}!", "2^{2^{2^{2^{2^{2}}}}}"])
def test_expressions_that_have_no_end_are_wrong_and_do_not_stay(expression):
    began = time.monotonic()
    assert not SCORERS.find("math").score(f"\\boxed{{{expression}}}", "1")["accuracy"]
    assert time.monotonic() - began < SECONDS
    assert maths().call("equal", "x+1", "1+x") is True  # the next one is compared as ever


def test_a_call_that_takes_too_long_ends():
    began = time.monotonic()
    with pytest.raises(MathsError, match="did not finish"):
        maths().call("parsed", "$" + "(" * 40 + "x" + ")^{x+1}" * 40 + "$", seconds=0.001)
    assert time.monotonic() - began < SECONDS


def test_mathematics_is_compared_off_the_main_thread():
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(bool(maths().call("equal", "x^2-1", "(x-1)(x+1)"))))
    thread.start()
    thread.join()
    assert found == [True]
