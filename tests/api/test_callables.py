"""Functions that cross process borders: by their file, or by value, and otherwise a sentence that names the culprit."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api.notebook import scorer

from whet.api.callables import LARGEST, in_file, pickled
from whet.api.inputs import Inputs
from whet.api.prepare import reward_spec
from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

FACTOR = 0.5


def at_top_level(response: str, answer: str) -> float:
    """Uses a variable of this module."""
    return FACTOR * (response == answer)


def twice(response: str, answer: str) -> float:
    return 2 * at_top_level(response, answer)


class Graded:
    """A reward with a state."""

    def __init__(self, grade: float) -> None:
        self.grade = grade

    def __call__(self, response: str, answer: str) -> float:
        return self.grade * at_top_level(response, answer)

    def method(self, responses: list[str], answers: list[str]) -> list[float]:
        return [self(*pair) for pair in zip(responses, answers)]


def _score(function: Callable[..., Any], folder: Path, **changes: Any) -> list[Sample]:
    inputs = Inputs(folder)
    samples = [
        Sample.written(Prompt(f"rows:{i}", [1], "question", "7"), [1], [0.0], "stop", text=text)
        for i, text in enumerate(("7", "8"))
    ]
    spec = reward_spec(function, inputs)
    with inputs.written(), RewardScorer(spec, RewardConfig(num_cpus=1, **changes)) as worker:
        worker.score(samples)
    return samples


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (at_top_level, 0.5),
        (scorer(3.0), None),
        (lambda response, answer: 2 * at_top_level(response, answer), 1.0),
        (functools.partial(twice), 1.0),
        (Graded(4.0), 2.0),
        (Graded(6.0).method, 3.0),
    ],
    ids=["file", "closure", "lambda", "partial", "object", "method"],
)
def test_rewards_of_every_kind_score_in_their_workers(
    function: Callable[..., Any], expected: float | None, tmp_path: Path
) -> None:
    right, wrong = _score(function, tmp_path)
    if expected is not None:
        assert (right.reward, wrong.reward) == (expected, 0.0)
    assert right.failure is None


def test_the_plain_form_may_ask_for_the_prompt(tmp_path: Path) -> None:
    def asks(response: str, answer: str, prompt: str) -> float:
        return float(prompt == "question" and response == answer)

    assert [sample.reward for sample in _score(asks, tmp_path)] == [1.0, 0.0]


def test_a_pickled_reward_keeps_its_timeout_and_its_isolation(tmp_path: Path) -> None:
    secret = {"calls": 0}

    def misbehaves(response: str, answer: str) -> float:
        import os
        import time

        secret["calls"] += 1  # of the copy in the worker
        if response == "7":
            time.sleep(60)
        os._exit(3)

    slow, dead = _score(misbehaves, tmp_path, timeout=1.5, fallback=-1.0)
    assert (slow.failure, dead.failure) == ("timeout", "died")
    assert (slow.reward, dead.reward) == (-1.0, -1.0)
    assert secret == {"calls": 0}


class _Explodes:
    def __reduce__(self) -> Any:
        return (_explode, ())


def _explode() -> None:
    raise RuntimeError("boom")


def test_what_cannot_be_loaded_in_the_worker_is_a_user_error(tmp_path: Path) -> None:
    bomb = _Explodes()
    with pytest.raises(UserError, match="RuntimeError: boom"):
        _score(lambda response, answer: bool(bomb), tmp_path)


def test_functions_of_files_keep_their_file_and_scripts_do_not(tmp_path: Path) -> None:
    file = tmp_path / "api_rewards.py"
    file.write_text("def compute(response, answer): return float(response == answer)\n")
    own = types.ModuleType("api_rewards")
    own.__file__, own.__package__ = str(file), ""
    exec(compile(file.read_text(), str(file), "exec"), own.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "api_rewards", own)
        assert in_file(own.compute) == f"{file}:compute"
        assert [sample.reward for sample in _score(own.compute, tmp_path)] == [1.0, 0.0]
    assert not list(tmp_path.glob("inputs/*"))
    for other in (scorer(1.0), lambda: 1, Graded(1.0), Graded.__call__, len, functools.partial(at_top_level)):
        assert in_file(other) is None
    script = types.ModuleType("__main__")
    exec("def compute(response, answer): return 1.0", script.__dict__)
    assert in_file(script.compute) is None


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    folder = tmp_path / "api_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "helper.py").write_text("def same(a, b): return float(a == b)\n")
    (folder / "rewards.py").write_text(
        "from .helper import same\ndef compute(response, answer): return same(response, answer)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("api_package.rewards").rewards
    for name in [name for name in sys.modules if name.startswith("api_package")]:
        del sys.modules[name]


def test_a_function_of_a_package_finds_its_relative_imports(package: Any, tmp_path: Path) -> None:
    assert in_file(package.compute) is None
    assert [sample.reward for sample in _score(package.compute, tmp_path / "run")] == [1.0, 0.0]


def _with(value: Any) -> Callable[..., Any]:
    return lambda response, answer: value


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_with(threading.Lock()), "its variable value is a _thread.lock"),
        (_with({"file": (i for i in range(3))}), "the entry 'file' of its variable value is a generator"),
        (functools.partial(at_top_level, extra=threading.Lock()), "of its keywords is a _thread.lock"),
        (_with(b"\0" * (LARGEST + 1)), "32 MB, more than 32"),
        (_with(sys._getframe()), "is a frame"),
    ],
    ids=["lock", "generator", "partial", "large", "frame"],
)
def test_what_cannot_be_sent_is_named(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        pickled(function, "reward: the function f")
