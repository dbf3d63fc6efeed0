"""Malformed arguments of the Python API: a `UserError`, whatever they are, and nothing left on the disk."""

from __future__ import annotations

import functools
import math
import random
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.cases import cases

import whet
from whet.api.names import names_of
from whet.config.schema import all_keys


class _Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class _Yes:
    """Has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return _Yes() if not name.startswith("__") else object.__getattribute__(self, name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Yes()


def _atom(draw: random.Random) -> Any:
    return draw.choice(
        [
            None, True, 0, -1, 2**80, 1.5, math.nan, math.inf, "", " ", "a", "\0", "\ud800", "${", "${x}", "???",
            "{{ x", "null", b"", b"\xff", 1j, object(), _Hostile(), _Yes(), Path("a"), Path("\0"), set(), {1}, range(3),
            int, len, np.zeros(2), np.float32(1), np.array(["a"], dtype=object), threading.Lock(), (x for x in "ab"),
            lambda: 1, functools.partial(print, threading.Lock()), Exception("e"), whet, ..., "/dev/null", "/proc/1",
            "../..", "~x",
        ]
    )  # fmt: skip


def _value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.random()
    if depth > 3 or kind < 0.6:
        return _atom(draw)
    items = [_value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    if kind < 0.7:
        return items
    if kind < 0.75:
        return tuple(items)
    if kind < 0.8:
        items.append(items)
        return items
    names = ["prompt", "answer", "worker", "rollout", "n", "data", "", "worker.rollout.n", "images", 5, None]
    return {draw.choice(names): item for item in items}


def _keys(draw: random.Random, job: str) -> dict[str, Any]:
    names = [*names_of(job), *all_keys(), "config", "overrides", "worker", "trainer", "zzz", "", "a.b", "lr "]
    return {draw.choice(names): _value(draw) for _ in range(draw.randint(0, 3))}


@pytest.mark.parametrize("job", ["train", "sft", "evaluate", "generate", "Session"])
def test_bad_arguments_are_user_errors(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model does not exist, so that no call can succeed; everything else is good or bad at random."""
    monkeypatch.chdir(tmp_path)
    function = getattr(whet, job)
    failures: list[str] = []
    for seed in range(cases(40, 2000)):
        draw = random.Random(f"{job}/{seed}")
        arguments: dict[str, Any] = {"model": str(tmp_path / "nothing")}
        rows = [{"prompt": "a", "answer": "b", "response": "c"}]
        if job in ("train", "sft", "evaluate"):
            arguments["data"] = rows
        if job in ("train", "evaluate", "Session"):
            arguments["reward"] = lambda response, answer: 1.0
        if job == "generate":
            arguments["prompts"] = ["a"]
        for name in draw.sample(list(arguments), draw.randint(0, 2)):
            arguments[name] = _value(draw)
        arguments |= _keys(draw, job.lower())
        try:
            function(**arguments)
        except whet.UserError as error:
            failures += [] if str(error) else [f"seed {seed}: an error without a sentence"]
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            failures.append(f"seed {seed}: {type(error).__name__} at {last.filename}:{last.lineno}")
        else:
            failures.append(f"seed {seed}: succeeded without a model")
    assert not failures, "\n".join(failures)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
