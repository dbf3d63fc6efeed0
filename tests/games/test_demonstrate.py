"""Demonstrations of the games: answers that are true of the pictures, and players who touch any button."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import count
from random import Random
from typing import Any

from demonstrate import Demonstrator
from environments import NumberGame, TreeGame
from phone.drawing import COLOURS
from PIL import Image


def colour_at(row: dict[str, Any], turn: int) -> str:
    """Return the colour of the picture of a turn at the point of the reply, above the label."""
    x, y = (int(each) for each in re.findall(r"\d+", row["messages"][2 * turn + 1]["content"]))
    with Image.open(io.BytesIO(row["images"][turn]["bytes"])) as picture:
        seen = picture.convert("RGB").getpixel((x, y - 10))
    return {shade: name for name, shade in COLOURS.items()}[seen]


def test_answers_name_the_place_of_the_colour_that_was_asked_for() -> None:
    demonstrator = Demonstrator(TreeGame, "tree_game", Random(1), count(7))
    for before in (0, 1) * 10:
        row = demonstrator.asked(before)
        assert len(row["messages"]) == 2 * len(row["images"]) == 2 * (before + 1)
        for turn in range(before + 1):
            assert row["messages"][2 * turn]["content"] == f"Where is {colour_at(row, turn)}?<image>"
            assert row["messages"][2 * turn + 1]["content"].startswith("at (")


def test_players_who_do_not_know_touch_any_button_after_right_turns() -> None:
    demonstrator = Demonstrator(TreeGame, "tree_game", Random(1), count(7))
    right: Counter[bool] = Counter()
    for _ in range(90):
        row = demonstrator.played(1, knows=False)
        said = [turn["content"] for turn in row["messages"]]
        assert said[0] == f"Open {colour_at(row, 0)}.<image>"
        right[said[2] == f"Open {colour_at(row, 1)}.<image>"] += 1
    assert 15 < right[True] < 45  # a third of 90


def test_players_who_know_win_the_number_game() -> None:
    row = Demonstrator(NumberGame, "number_game", Random(1), count(7)).played(2, knows=True)
    assert [colour_at(row, turn) for turn in range(3)] == list(COLOURS)[:3]
