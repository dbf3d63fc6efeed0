"""gymnasium: episodes in text and from images, actions in turns, and names that do not exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whet.data.files import read_rows
from whet.envs.adapters.gymnasium import GymnasiumEnv, marked, written
from whet.envs.loading import env_factory
from whet.envs.observations import read_observation
from whet.envs.protocol import Action
from whet.errors import UserError
from whet.types import Prompt

gymnasium = pytest.importorskip("gymnasium", reason="needs whet[gymnasium]")
spaces = gymnasium.spaces
PROMPT = Prompt("x", [], "")


def test_frozen_lake_is_won_in_text() -> None:
    env: Any = env_factory("gymnasium:FrozenLake-v1", options={"is_slippery": False})()
    assert env.reset(PROMPT, 1) == "[S]FFF\nFHFH\nFFFH\nHFFG"
    observation, reward, done, info = env.step(Action("jump"))
    assert "one of left, down, right, up" in observation
    assert (reward, done, info) == (0.0, False, {"invalid": 1})
    turns = ["Down", "<think>up, left</think>1", "not left but <action>right</action>", "go right", "down", "2"]
    for turn in turns[:-1]:
        *_, done, _ = env.step(Action(turn))
        assert not done
    observation, reward, done, info = env.step(Action(turns[-1]))
    assert (reward, done, info["end"]) == (1.0, True, "terminated")
    env.close()


def test_numbers_are_read_and_written() -> None:
    env: Any = env_factory("gymnasium:Pendulum-v1")()
    assert env.reset(PROMPT, 1).count(",") == 2
    assert env.step(Action("torque 9.5"))[3] == {"invalid": 0}  # cut to the space
    assert env.step(Action("1 and 2"))[3] == {"invalid": 1}
    assert written({"a": 1.23456, "b": (1, [2.0])}) == "a: 1.235\nb: (1, [2])"
    assert marked("\x1b[35mR\x1b[0m \x1b[34;1mB\x1b[0m \x1b[43m \x1b[0m") == "(R) *B* [ ]"


@pytest.mark.parametrize(
    ("space", "phrase", "good", "bad"),
    [
        (spaces.Box(-1, 1, (2,)), "2 numbers from -1 to 1", "0.5, 3", "0.5"),
        (spaces.Box(-np.inf, np.inf, (1,)), "a number", "7", "none"),
        (
            spaces.Box(np.array([0, -1]), np.array([5, 1]), dtype=np.int64),
            "2 whole numbers, from 0 to 5, -1 to 1",
            "5 0",
            "0.5 0",
        ),
        (spaces.MultiDiscrete([2, 3], start=[1, 0]), "2 whole numbers, from 1 to 2, 0 to 2", "2 2", "0 0"),
        (spaces.MultiDiscrete([2, 2]), "2 whole numbers from 0 to 1", "1 0", "0.9 0"),
        (spaces.MultiBinary(2), "2 whole numbers, each 0 or 1", "1 1", "2 1"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_actions_of_several_numbers_are_described_and_read(space: Any, phrase: str, good: str, bad: str) -> None:
    env = GymnasiumEnv.__new__(GymnasiumEnv)
    env._names, env._env = (), SimpleNamespace(action_space=space, render_mode=None)
    assert env.described == phrase
    assert env._parsed(good) is not None
    assert env._parsed(bad) is None


def test_pictures_are_told_from_stacks_of_frames() -> None:
    env = GymnasiumEnv.__new__(GymnasiumEnv)
    env._env = SimpleNamespace(render_mode=None)
    assert env._shown(np.zeros((8, 6, 1), np.uint8)).shape == (8, 6)  # type: ignore[union-attr]
    assert env._shown(np.zeros((2, 1, 2), np.uint8)) == "[[[0, 0]], [[0, 0]]]"


def test_images_are_observations() -> None:
    class Picture(gymnasium.Env):  # type: ignore[misc, name-defined]
        metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode: str | None = None) -> None:
            self.render_mode = render_mode

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            return 1, 0.5, False, True, {"is_success": action == 1}

        def render(self) -> Any:
            return np.zeros((8, 6, 3), np.uint8)

    gymnasium.register("Picture-v0", entry_point=Picture)
    env: Any = env_factory("gymnasium:Picture-v0", options={"render_mode": "rgb_array", "actions": ["no", "yes"]})()
    observed = read_observation(env.reset(PROMPT, 1), "user")
    assert observed is not None
    assert observed.images[0].size == (6, 8)
    _, reward, done, info = env.step(Action("yes"))
    assert (reward, done, info["end"], info["accuracy"]) == (0.5, True, "truncated", 1)


def test_rows_name_the_actions_and_a_seed() -> None:
    rows = read_rows("gymnasium:CliffWalking-v1@3-4")
    assert [row["seed"] for row in rows] == [3, 4]
    assert "one of up, right, down, left" in rows[0]["prompt"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gymnasium:FrozenLak-v1", {}, "did you mean FrozenLake-v1"),
        ("gymnasium:", {}, "gymnasium cannot make"),
        ("gymnasium:FrozenLake-v1", {"slippery": True}, "gymnasium cannot make"),
        ("gymnasium:FrozenLake-v1", {"actions": ["a"]}, "actions has 1 names"),
    ],
)
def test_names_that_do_not_exist(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        env_factory(name, options=options)
    assert str(error.value).startswith(f"worker.rollout.env={name}: ")
    assert said in str(error.value)
