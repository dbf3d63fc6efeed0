"""Reward functions in TRL's form, `f(completions, prompts, a_column, ..., **columns)`, called as whet's batch form is.

A row whose column `prompt` is a chat has its completion as a list of one message, any other row as a text. Every column
is a list with an entry for each sample. None in what is returned counts as 0, as TRL adds it up.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

# What TRL passes besides columns, and whet has not: of the trainer's process, not of a sample.
NOT_GIVEN = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
_WHETS_OWN = ("prompt", "response", "response_length")


def adapted(function: Callable[..., Any], needed: Collection[str]) -> Callable[..., Any]:
    """Return a function of a list of rows, and of options by name, that calls one of TRL's form.

    `needed` are the parameters without a default.
    """
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def call(rows: list[dict[str, Any]], **options: Any) -> Any:
        names = dict.fromkeys(name for row in rows for name in row if name not in _WHETS_OWN)
        given: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        given |= {"prompts": [row["prompt"] for row in rows], "completions": [_completion(row) for row in rows]}
        given |= options
        if missing := [name for name in needed if name not in given]:
            raise TypeError(f"takes {', '.join(missing)}: no column of the data, which has {', '.join(names)}")
        result = function(**(given if takes_all else {name: given[name] for name in parameters if name in given}))
        result = asyncio.run(result) if inspect.iscoroutine(result) else result
        return [0.0 if each is None else each for each in result] if isinstance(result, list | tuple) else result

    return call


def _completion(row: Mapping[str, Any]) -> Any:
    text = row["response"]
    return [{"role": "assistant", "content": text}] if isinstance(row["prompt"], list) else text
