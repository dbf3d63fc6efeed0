"""`worker.rollout.env=reasoning_gym:TASK`: the tasks of the reasoning-gym package, scored by their own scorers.

Rows of `data.train_files=reasoning_gym:TASK@1000` name a task each, and `env=reasoning_gym` plays whatever they name.
With other rows the environment puts a task of its own in the place of the row's last user turn, chosen by the seed.
"""

from __future__ import annotations

import cmath
import dataclasses
import functools
import inspect
import json
import math
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

from whet.config.problems import hint
from whet.envs.expressions import is_harmless, is_short
from whet.envs.generated import split_settings
from whet.envs.packages import require
from whet.envs.protocol import Action, Message
from whet.envs.replies import answer_in
from whet.errors import UserError
from whet.types import Prompt

COLUMN = "reasoning_gym"  # of a row: {"task", "index", "settings"}, as JSON
SIZE = 10_000  # tasks of a data set; one task (acre) depends on it, so rows and environments share it
_RUNS = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
_LOCK = threading.Lock()  # making a data set twice at a time would cost seconds for some tasks


class ReasoningGymEnv:
    """One task: the policy answers once and earns what the task's scorer gives."""

    def __init__(self, argument: str, **settings: Any) -> None:
        """`settings` are those of the task's data set, such as seed and its levels of difficulty."""
        self._name, self._settings = _asked(argument, settings)

    @staticmethod
    def check(argument: str, **settings: Any) -> None:
        """Raise `UserError` for a task or a setting that does not exist."""
        require("reasoning_gym", "reasoning_gym")
        name, settings = _asked(argument, settings)
        if name:
            _dataset(name, _frozen(settings))
        elif settings:
            raise UserError(f"settings ({', '.join(settings)}) need a task, as in reasoning_gym:countdown")

    def reset(self, prompt: Prompt, seed: int) -> list[Message] | None:
        """Take the row's task, or choose one by the seed."""
        named = prompt.extra.get(COLUMN)
        if named is not None:
            self._take(json.loads(named) if isinstance(named, str) else named)
            return None
        if not self._name:
            raise ValueError(f"the row has no column {COLUMN}, and worker.rollout.env=reasoning_gym names no task")
        self._frozen = _frozen(self._settings)
        self._index = seed % len(_dataset(self._name, self._frozen))
        question = _entry(self._name, self._frozen, self._index)["question"]
        kept = [message for message in prompt.messages if message.get("role") == "system"]
        return [*kept, {"role": "user", "content": question}]

    def step(self, action: Action) -> tuple[None, float, bool, dict[str, Any]]:
        """Score the answer; a scorer that raises on it gives 0, and so does an answer that is a program."""
        entry, dataset = _entry(self._name, self._frozen, self._index), _dataset(self._name, self._frozen)
        answer = answer_in(action, "answer")
        harmless = is_harmless(answer) if _evaluates(self._name, self._frozen) else is_short(answer)
        refused = not harmless or (_is_nan(answer) and answer != entry["answer"])
        score, raised = 0.0, 0
        try:
            score = 0.0 if refused else float(dataset.score_answer(answer, entry=entry))
        except Exception:  # of odd texts, some scorers raise anything
            raised = 1
        score = score if math.isfinite(score) else 0.0
        info = {"accuracy": float(score >= 1), "scorer_raised": raised, "refused": int(refused), "end": "answered"}
        return None, score, True, info

    def _take(self, named: Mapping[str, Any]) -> None:
        if self._name and named["task"] != self._name:
            raise ValueError(
                f"the row is a task of {named['task']}, the environment plays {self._name}; "
                "worker.rollout.env=reasoning_gym plays each row's own"
            )
        self._name, self._frozen, self._index = named["task"], _frozen(named["settings"]), int(named["index"])


def reasoning_gym_rows(argument: str, numbers: range) -> list[dict[str, Any]]:
    """Return rows with a task each, counted from 1; `answer` is the reference answer, None where there is none."""
    require("reasoning_gym", "reasoning_gym")
    name, settings = _asked(argument, {})
    settings.setdefault("size", max(SIZE, numbers[-1]))
    dataset = _dataset(name, _frozen(settings))
    if len(dataset) < numbers[-1]:
        raise UserError(f"row {numbers[-1]} is behind the last of {len(dataset)} tasks; raise its setting size")
    rows = []
    for number in numbers:
        entry = dataset[number - 1]
        named = {"task": name, "index": number - 1, "settings": settings}
        rows.append({"prompt": entry["question"], "answer": entry["answer"], COLUMN: json.dumps(named)})
    return rows


def _is_nan(answer: str) -> bool:
    """True for a number that is none: its distance to anything passes for the smallest where scorers take `min`."""
    try:
        return cmath.isnan(complex(answer.replace(" ", "").replace("i", "j")))
    except ValueError:
        return False


def _asked(argument: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a task; the seed is fixed unless one is given."""
    name, settings = split_settings(argument)
    return name, {"seed": 0, **settings, **options} if name else {**settings, **options}


def _frozen(settings: Mapping[str, Any]) -> str:
    return json.dumps({"size": SIZE, **settings}, sort_keys=True)


@functools.lru_cache(maxsize=4096)
def _entry(name: str, frozen: str, index: int) -> dict[str, Any]:
    """Return a task; all samples of a group share it."""
    entry: dict[str, Any] = _dataset(name, frozen)[index]
    return entry


@functools.lru_cache(maxsize=4096)
def _evaluates(name: str, frozen: str) -> bool:
    """True if a scorer may run answers as Python: its module mentions one of the functions that do."""
    classes = type(_dataset(name, frozen)).__mro__
    modules = {each.__module__ for each in classes if "score_answer" in vars(each)}
    return any(_RUNS.search(inspect.getsource(sys.modules[module])) for module in modules)


def _dataset(name: str, frozen: str) -> Any:
    with _LOCK:
        return _made(name, frozen)


@functools.lru_cache(maxsize=256)
def _made(name: str, frozen: str) -> Any:
    from reasoning_gym.factory import DATASETS, create_dataset

    names = sorted(set(DATASETS) - {"composite"})
    if name == "composite":
        raise UserError("composite has no tasks of its own: name several data sets, with commas between them")
    if name not in names:
        close = hint(name, names)
        listed = "" if close else f"; some of its {len(names)} tasks are {', '.join(names[:: len(names) // 8])}"
        raise UserError(f"reasoning-gym has no task {name!r}{close}{listed}")
    settings = json.loads(frozen)
    known = [field.name for field in dataclasses.fields(DATASETS[name][1])]
    for key in settings:
        if key not in known:
            raise UserError(f"{name} has no setting {key}{hint(key, known)} (it has {', '.join(known)})")
    try:
        return create_dataset(name, **settings)
    except Exception as error:  # checks of settings are assertions, and more
        raise UserError(f"{name} refuses its settings {frozen}: {type(error).__name__}: {error}") from error


ENV = ReasoningGymEnv
ROWS = reasoning_gym_rows
