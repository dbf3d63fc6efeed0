"""PRM800K's grade: sympy's parser evaluates Python, and what a model wrote must not be Python to it."""

from __future__ import annotations

import pytest

pytest.importorskip("sympy")
pytest.importorskip("pylatexenc")
from whet.rewards.answers.prm800k import grade

# Python reads ⅹ and ⅽ (Roman numerals, which are no letters) as x and c.
HOSTILE = ["e\u2179e\u217d(1)", "x.e", "__a__", "'a'*3", '"a"*3', "a@a", "1;1"]


@pytest.mark.parametrize("given", HOSTILE)
def test_sympy_is_not_asked_about_python(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sympy.parsing import sympy_parser

    asked: list[str] = []
    monkeypatch.setattr(sympy_parser, "parse_expr", lambda text, **_: asked.append(text))
    assert not grade(given, "x")
    assert asked == []
    grade("x+1-1", "x")
    assert len(asked) == 1  # what is mathematics still reaches it


@pytest.mark.parametrize(
    ("given", "truth"), [("2x+1", "1+2x"), (r"\sqrt{2}/2", r"1/\sqrt{2}"), ("3.5", "7/2"), ("x_1+2", "2+x_1")]
)
def test_forms_of_one_number(given: str, truth: str) -> None:
    assert grade(given, truth)
