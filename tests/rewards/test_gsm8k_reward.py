"""The GSM8K reward of the examples."""

import importlib.util
from pathlib import Path

import jinja2
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "reward_function" / "gsm8k.py"


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
        ("#### $-5", "-5", 1, 1),
        ("he keeps 8-3", "3", 1, 0),
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


def test_the_answer_that_the_template_shows_has_the_right_form(score):
    text = jinja2.Template((EXAMPLES / "format_prompt" / "gsm8k.jinja").read_text()).render(content=" How many? ")
    assert text.startswith("How many?\n")
    assert score(text, "42") == {"overall": 1.0, "accuracy": 1.0, "format": 1.0}
