"""Environments by name: files, modules, names that come with whet, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.envs.adapters.single_turn import SingleTurnEnv
from whet.envs.loading import env_factory
from whet.errors import UserError

CODE = """
class Maze:
    def __init__(self, size=3):
        self.size = size
    def reset(self, prompt): ...
    def step(self, action): ...

class Half:
    def reset(self, prompt): ...

class Columns(Maze):
    def reset(self, problem, answer): ...

class OfGymnasium(Maze):
    def reset(self, seed=None, options=None): ...

class Stepless(Maze):
    def step(self): ...

class Static(Maze):
    @staticmethod
    def reset(prompt, *, seed): ...
    @classmethod
    async def step(cls, action, cheat=False): ...

def make(size): return Maze(size)
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_env.py"
    path.write_text(CODE)
    return path


def test_a_class_and_a_function_of_a_file(file: Path) -> None:
    assert env_factory(f"{file}:Maze")().size == 3  # type: ignore[attr-defined]
    assert env_factory(f"{file}:Maze", options={"size": 5})().size == 5  # type: ignore[attr-defined]
    assert env_factory(f"{file}:make", options={"size": 7})().size == 7  # type: ignore[attr-defined]


def test_methods_that_can_be_called_with_the_row_are_taken(file: Path) -> None:
    assert env_factory(f"{file}:Static")().size == 3  # type: ignore[attr-defined]


def test_a_module_and_a_built_in_name() -> None:
    assert isinstance(env_factory("whet.envs.adapters.single_turn:SingleTurnEnv")(), SingleTurnEnv)
    assert isinstance(env_factory("single_turn")(), SingleTurnEnv)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("{file}:Haze", {}, "defines no Haze"),
        ("{file}:Half", {}, "Half has no method step"),
        ("{file}:Columns", {}, "'answer'; prompt.extra has the columns of the row"),
        ("{file}:OfGymnasium", {}, "reset must take reset(self, prompt) or reset(self, prompt, seed): multiple values"),
        ("{file}:Stepless", {}, "step must take step(self, action): too many positional arguments"),
        ("{file}:number", {}, "expected a class with reset and step, found a int"),
        ("{file}:Maze", {"width": 3}, "does not take worker.rollout.env_args (width)"),
        ("{file}:make", {}, "does not take worker.rollout.env_args (none): missing a required argument: 'size'"),
        ("{folder}/other.py:Maze", {}, "there is no file"),
        ("no.such.module:Maze", {}, "no.such.module cannot be imported"),
        ("json:Maze", {}, "json defines no Maze"),
        ("single_trun", {}, "did you mean single_turn"),
        ("a b:c", {}, "expected path.py:NAME"),
        ("single_turn", {"x": 1}, "does not take worker.rollout.env_args (x)"),
    ],
)
def test_names_that_lead_nowhere(file: Path, name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(UserError) as error:
        env_factory(name.format(file=file, folder=file.parent), options=options)
    assert said in str(error.value)
    assert str(error.value).startswith("worker.rollout.env=")


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "broken_env.py"
    path.write_text("import no_such_package\n")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        env_factory(f"{path}:Maze")
