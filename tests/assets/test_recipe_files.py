"""Rewards and environments of the recipes by themselves: numbers by hand, and input that is not as expected."""

from __future__ import annotations

import importlib.util
import math
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from whet.assets.recipes import recipes_folder
from whet.types import Media, Prompt


def _module(recipe: str, name: str) -> ModuleType:
    path = recipes_folder() / recipe / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{recipe}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        ("[10, 20]", [0, 0, 15, 25], 2.0),
        ("[50, 50] [10, 20]", [0, 0, 15, 25], 1 + 1 / math.sqrt(4)),
        ("[50, 50] [60, 10] [10, 20]", "[0, 0, 15, 25]", 1 + 1 / 3),
        (
            '[{"point_2d": [10, 20]}, {"point_2d": [50, 50]}]',
            {"x1": 0, "y1": 0, "x2": 15, "y2": 25},
            1 + 1 / math.sqrt(2),
        ),
        ("[50, 50] [60, 10] [70, 20]", [0, 0, 15, 25], 1 - 1 / 3),
        ("[1, 1] [2, 2] [3, 3]", [2, 2, 3, 3], -1.0),  # on a line
        ("[2, 2] [9, 3] [4, 4] [6, 6]", [2, 2, 3, 3], -1.0),  # three of four are
        ("no point", [0, 0, 1, 1], -1.0),
        ("Answer: 9 5 2", "9", 1 + 1 / math.sqrt(3)),
        ("Answer: 5 9", "9", 1.5),
        ("Answer: 5 8", "9", 0.5),
    ],
)
def test_infigui_reward(response: str, truth: Any, reward: float) -> None:
    score = _module("infigui_g1", "reward").compute_score({"response": response, "ground_truth": truth})
    assert score["overall"] == pytest.approx(reward)


def test_fapo_reward() -> None:
    score = _module("fapo", "reward").compute_score
    row = {"problem": "Sort these digits: 5 2 9", "ground_truth": "2 5 9"}
    said = {"5 2 9 = 2 5 9": (1.0, 0.0), "9 2 5 = 2 5 9": (0.0, 1.0), "5 2 9 = 9 5 2": (-1.0, 0.0), "": (-1.0, 0.0)}
    for response, (reward, flawed) in said.items():
        found = score(row | {"response": response})
        assert (found["overall"], found["flawed"]) == (reward, flawed), response
        assert score(row | {"response": response}, lam=0.0)["overall"] == (1.0 if found["accuracy"] else -1.0)


def test_r1_reward() -> None:
    score = _module("r1", "reward").compute_score
    assert score("<think>so</think> \\boxed{1 2}", "1 2") == {"overall": 1.0, "accuracy": 1.0, "format": 1.0}
    assert score("<think>so</think> 12", "1 2")["accuracy"] == 1.0
    assert score("1 2", "1 2")["overall"] == 0.0  # no thoughts
    assert score("<think>so</think> <think> 1 2", "1 2")["format"] == 0.0
    assert score("<think>so</think> 3", "1 2")["overall"] == pytest.approx(0.1)


def test_zoom_shows_the_part_that_was_asked_for() -> None:
    image = Image.new("RGB", (80, 60))
    image.paste((255, 0, 0), (40, 0, 80, 30))
    make = _module("deepeyes", "zoom").Zoom
    env = make(looks=2, enlarged=160)
    env.reset(Prompt("rows:1", [], "", answer="Red", media=Media(images=[image])))
    call = '<tool_call>{"name": "zoom", "arguments": {"box": [40, 0, 80, 30]}}</tool_call>'
    seen, reward, done, _ = env.step(call)
    assert (reward, done) == (0.0, False)
    assert seen["images"][0].size == (160, 120)
    assert seen["images"][0].getpixel((80, 60)) == (255, 0, 0)
    for wrong in ("[5, 5, 2, 9]", "[900, 0, 950, 10]", '["a", 1, 2, 3]', "[1, 2]", "{}"):
        other = make(looks=1)
        other.reset(Prompt("rows:1", [], "", answer="Red", media=Media(images=[image])))
        said, _, done, _ = other.step(f'<tool_call>{{"name": "zoom", "arguments": {{"box": {wrong}}}}}</tool_call>')
        assert not done
        assert said.startswith("Error"), wrong
    assert env.step("<answer>red</answer>")[1:] == (1.5, True, {"end": "answered", "accuracy": 1.0, "looks": 1})
    fresh = make(looks=0)
    fresh.reset(Prompt("rows:1", [], "", answer="red", media=Media(images=[image])))
    assert fresh.step(call)[2:] == (True, {"end": "too many looks", "accuracy": 0, "looks": 0})
    with pytest.raises(ValueError, match="needs a row with an image"):
        make().reset(Prompt("rows:1", [], ""))


def test_the_user_without_a_model_answers_and_pays() -> None:
    make = _module("collabllm", "user").NumberInMind
    user = make(high=15, turns=3, penalty=0.3)
    user.reset(Prompt("rows:1", [], "", extra={"secret": "11"}))
    said, first, done, _ = user.step("8")
    assert (said, done) == ("higher", False)
    assert first == pytest.approx(0.25 * math.log(15 / 7) / math.log(15) - 0.1)
    assert user.step("12")[0] == "lower"
    assert user.step("11")[1:] == (pytest.approx(0.9), True, {"end": "done", "accuracy": 1, "turns_used": 3})
    other = make()
    other.reset(Prompt("rows:1", [], "", extra={"secret": "3"}))
    assert other.step("three")[1:3] == (-1.0, True)


def test_conversations_of_gsm8k() -> None:
    row = _module("collabllm", "prepare").conversation("Tom has 3 pens. He buys 2. How many pens has he?", "5")
    assert row["prompt"].endswith("How many pens has he?")
    assert "3 pens" not in row["prompt"]
    assert "3 pens" in row["intent"]
