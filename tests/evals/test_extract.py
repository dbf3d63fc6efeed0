"""Final answers are found where people and models write them."""

from __future__ import annotations

import pytest

from whet.evals.extract import extract, normal

THOUGHT = "<think>Perhaps B, or 7, or no.</think>"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("boxed", r"so \boxed{\frac{1}{2}} and \boxed{\text{a {b}}}", r"\text{a {b}}"),
        ("boxed", r"never closed \boxed{1", None),
        ("boxed", r"\boxed{ }", None),
        ("answer", "<think>x</think><answer>3</answer> <ANSWER> 4 </ANSWER>", "4"),
        ("answer", r"<answer>\boxed{5}</answer>", "5"),
        ("answer", "answer: 4", None),
        ("marked", "#### 1\nno\n#### $1,234 \nthanks", "$1,234"),
        ("stated", f"{THOUGHT} Answer: 1 2\nThe answer is **3 4**", "3 4"),
        ("stated", "Answer: 3 1 2", "3 1 2"),
        ("stated", "it is 3", None),
        ("number", f"{THOUGHT} It costs $1,234.50, not 12.", "12"),
        ("number", "It is -3.5e2", "-3.5e2"),
        ("number", "none", None),
        ("letter", "B", "B"),
        ("letter", "(c) the liver", "C"),
        ("letter", f"{THOUGHT} The answer is **D**.", "D"),
        ("letter", "I think that A is wrong. So the correct option is: (B) because C is small", "B"),
        ("letter", r"A hard one, but \boxed{C}", "C"),
        ("letter", "<answer>A</answer>", "A"),
        ("letter", "nothing here", None),
        ("yes_no", "Yes, there is.", "yes"),
        ("yes_no", f"{THOUGHT} Answer: yes", "yes"),
        ("yes_no", "There is no doubt. The answer is yes", "yes"),
        ("yes_no", "Nobody knows", None),
        ("text", f"{THOUGHT}\n left lung \n", "left lung"),
        ("text", "x" * 301, None),
    ],
)
def test_extractors(name: str, text: str, found: str | None) -> None:
    assert extract(text, [name]) == found


def test_the_first_that_finds_something_decides() -> None:
    assert extract(r"\boxed{1} #### 2", ["answer", "marked", "boxed"]) == "2"
    assert extract("", ["answer", "text"]) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,234", "1234.0"),
        ("$18", "18"),
        ("050", "50"),
        (r"\frac{1}{2}", "1/2"),
        (r"\dfrac{3}{4}.", r"\left(3\right)/4".replace(r"\left(3\right)", "3")),
        (r"90^\circ", "90"),
        (r"\text{Yes}", "yes"),
        ("The left  lung.", "left lung"),
        ("25\\%", "25"),
    ],
)
def test_equal_answers_are_equal_texts(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), [("1.5", "15"), ("1/2", "2"), ("a", "an"), ("-3", "3")])
def test_different_answers_differ(one: str, other: str) -> None:
    assert normal(one) != normal(other)
