"""The built-in game: rows, demonstrations, and the environment of examples/agents/game."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from whet.assets.guess import GUESSES, HIGH, LOW, demonstrations, rows
from whet.assets.project import write_project
from whet.config.examples import examples_folder
from whet.config.registry import read_file
from whet.types import Prompt


@pytest.fixture
def game() -> Iterator[Any]:
    before = list(sys.path)
    yield read_file("worker.rollout.env", examples_folder() / "agents" / "game" / "guess.py", "Guess")
    sys.path[:] = before


def test_demonstrations_answer_truly() -> None:
    for played in islice(demonstrations(1), 200):
        assert 1 <= len(played) <= GUESSES
        low, high = LOW, HIGH
        for guess, answer in played[:-1]:
            low, high = (max(low, int(guess) + 1), high) if answer == "higher" else (low, min(high, int(guess) - 1))
        assert low <= high
        if not played[-1][1]:
            assert low <= int(played[-1][0]) <= high


def test_halving_always_wins_and_earns_one(game: Any) -> None:
    for row in rows():
        env, low, high, earned, done = game(HIGH, GUESSES), LOW, HIGH, 0.0, False
        env.reset(Prompt("row", [], "", extra=row))
        while not done:
            guess = (low + high) // 2
            said, reward, done, info = env.step(str(guess))
            earned += reward
            low, high = (guess + 1, high) if said == "higher" else (low, guess - 1)
        assert info == {"end": "found", "accuracy": 1}
        assert earned == pytest.approx(1.0)


def test_knowing_the_number_without_saying_it_earns_half(game: Any) -> None:
    env = game(HIGH, GUESSES)
    env.reset(Prompt("row", [], "", extra={"secret": 1}))
    results = [env.step(guess) for guess in ("8", "4", "2", "14")]
    assert sum(reward for _, reward, _, _ in results) == pytest.approx(0.5)
    assert results[-1][2:] == (True, {"end": "out of guesses", "accuracy": 0})


@pytest.mark.parametrize(("guesses", "end"), [(["ten"], "no number"), (["99"] * GUESSES, "out of guesses")])
def test_games_that_are_lost(game: Any, guesses: list[str], end: str) -> None:
    env = game(HIGH, GUESSES)
    env.reset(Prompt("row", [], "", extra={"secret": 7}))
    results = [env.step(guess) for guess in guesses]
    assert results[-1][2:] == (True, {"end": end, "accuracy": 0})
    assert sum(reward for _, reward, _, _ in results) <= 0


def test_the_project_of_whet_new_has_the_same_environment(tmp_path: Path) -> None:
    example = examples_folder() / "agents" / "game" / "guess.py"
    assert tmp_path / "mine" / "env.py" in write_project(tmp_path / "mine", "agent")
    assert (tmp_path / "mine" / "env.py").read_text() == example.read_text()
