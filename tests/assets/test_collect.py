"""The built-in game with pictures: boards, demonstrations, and the environment of examples/agents/image_game."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from whet.assets.collect import NAMES, SHAPES, SIDE, SPLITS, TURNS, Board, demonstrations
from whet.config.examples import examples_folder
from whet.config.registry import read_file
from whet.types import Prompt


@pytest.fixture
def game() -> Iterator[Any]:
    before = list(sys.path)
    yield read_file("worker.rollout.env", examples_folder() / "agents" / "image_game" / "collect.py", "Collect")
    sys.path[:] = before


def opened(game: Any, seed: int) -> tuple[Any, list[Any]]:
    env = game(SHAPES, TURNS)
    (message,) = env.reset(Prompt("row", [], "", extra={"seed": seed}))
    return env, message["content"]


def test_boards_are_those_of_their_seeds_and_each_picture_is_another() -> None:
    first, again, other = Board(5), Board(5), Board(6)
    assert first.names == again.names != other.names
    pictures = [first.picture(), first.picture()]
    assert pictures[0].tobytes() == again.picture().tobytes() != pictures[1].tobytes()
    assert pictures[0].size == (SIDE, SIDE)
    assert not set(SPLITS["train"]) & set(SPLITS["test"])


def test_demonstrations_show_what_they_ask_for() -> None:
    turns = list(islice(demonstrations(1), 100))
    assert {len(turn.images) for turn in turns} == {1, 2, 3, 4}
    for turn in turns:
        assert turn.problem.count("<image>") == len(turn.images)
        assert turn.answer in NAMES
        assert len(turn.images) <= TURNS


def test_naming_every_shape_wins_and_earns_one(game: Any) -> None:
    env, content = opened(game, 3)
    assert [part["type"] for part in content] == ["image", "text"]
    earned = 0.0
    for left in (2, 1, 0):
        observed, reward, done, info = env.step(f" {env.board.names[0]}\n")
        earned += reward
        assert done == (left == 0)
        assert (observed is None) == done
    assert earned == pytest.approx(1.0)
    assert info == {"accuracy": 1, "end": "all named"}


def test_a_wrong_name_costs_a_turn_and_shows_the_shape_elsewhere(game: Any) -> None:
    env, content = opened(game, 3)
    name = env.board.names[0]
    shown = [content[0]["image"].tobytes()]
    for turn in range(TURNS):
        observed, reward, done, info = env.step("a cat")
        assert reward == 0
        assert done == (turn == TURNS - 1)
        if not done:
            shown.append(observed[0]["content"][0]["image"].tobytes())
    assert env.board.names[0] == name
    assert len(set(shown)) == TURNS
    assert info == {"accuracy": 0, "end": "out of turns"}
