"""The GSM8K reward of the examples."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples" / "reward_function" / "gsm8k.py"


@pytest.fixture(scope="module")
def score():
    spec = importlib.util.spec_from_file_location("gsm8k_reward", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda response, truth, **options: module.compute_score(
        {"response": response, "ground_truth": truth}, **options
    )


@pytest.mark.parametrize(
    ("response", "truth", "accuracy", "form"),
    [
        ("48 + 24 = 72\n#### 72", "sold <<48+24=72>>72 clips\n#### 72", 1, 1),
        ("#### 72.00", "72", 1, 1),
        ("#### $1,234", "#### 1234", 1, 1),
        ("#### -5", "-5", 1, 1),
        ("#### 72 clips", "72", 1, 0),
        ("The answer is \\boxed{72}, from 3 parts.", "72", 1, 0),
        ("so she sold 72.", "72", 1, 0),
        ("#### 71, no, 72", "72", 0, 0),
        ("#### 12", "2", 0, 1),
        ("", "72", 0, 0),
        ("####", "72", 0, 0),
        ("no idea", "72", 0, 0),
    ],
)
def test_scores(score, response, truth, accuracy, form):
    result = score(response, truth)
    assert (result["accuracy"], result["format"]) == (accuracy, form)
    assert result["overall"] == pytest.approx(0.9 * accuracy + 0.1 * form)


def test_strict_wants_the_mark(score):
    assert score("it is 72", "72", strict=True)["accuracy"] == 0
    assert score("#### 72", "72", strict=True)["accuracy"] == 1
