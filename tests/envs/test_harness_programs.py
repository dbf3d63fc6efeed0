"""Functions take what they name; what a program that failed has to say is its exception."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from whet.envs.harness.programs import complaint, taken_names
from whet.envs.harness.scores import Scores, read_scores
from whet.envs.observations import BadResultError


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda base_url, api_key, row: 0, ["base_url", "api_key", "row"]),
        (lambda row, base_url: 0, ["row", "base_url"]),
        (lambda base_url, tries=3: 0, ["base_url"]),
        (lambda **given: 0, ["base_url", "api_key", "row"]),
        (lambda a, b, c: 0, None),
        (lambda *given: 0, None),
        (lambda base_url, key, row: 0, None),
    ],
)
def test_names_that_a_function_takes(function: Any, names: list[str] | None) -> None:
    assert taken_names(function) == names


@pytest.mark.parametrize("function", [lambda: 0, lambda one: 0, lambda a, b, c, d: 0, lambda base_url, *, more: 0])
def test_functions_that_cannot_be_called(function: Any) -> None:
    with pytest.raises(TypeError):
        taken_names(function)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("def f():\n    raise KeyError('seat')\nf()", "KeyError: 'seat'"),
        ("e = ValueError('too long\\nof 3')\ne.add_note('in task 7')\nraise e", "ValueError: too long"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise OSError('gone')", "OSError: gone"),
        ("import sys\nprint('one\\n  two', file=sys.stderr)", "two"),
        ("", ""),
    ],
)
def test_what_a_program_has_to_say(program: str, said: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert complaint(ended.stderr) == said


def test_scores_besides_the_reward_are_left_out_where_they_are_no_numbers() -> None:
    given = {"score": True, "nan": float("nan"), "huge": 10**400, "text": "x", "n": 2, "end": "won"}
    assert read_scores(given) == Scores(1.0, {"n": 2.0}, "won")


@pytest.mark.parametrize("reward", [10**400, 1e9, float("-inf"), "1", None])
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    with pytest.raises(BadResultError, match="overall must be a number within"):
        read_scores({"overall": reward})
