"""Call one function of a program with JSON arguments and send its result, inside the program's process.

The reply is data that the grader compares outside: a program that writes a reply of its own has merely answered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from whet.sandbox.interpreter import MODES, load


def find_function(namespace: Mapping[str, Any], name: str) -> Any:
    """Return a function by name: of the module, or a method of its class Solution."""
    if name in namespace:
        return namespace[name]
    if "Solution" in namespace:
        return getattr(namespace["Solution"](), name)
    raise NameError(f"the program defines no function {name!r}")


def answer_call(request: dict[str, Any], channel: int) -> None:
    """Load a program, call its function, write the result as JSON."""
    module = load(request["source"], "solution")
    value = find_function(module.__dict__, request["function"])(*request["arguments"])
    left = memoryview(json.dumps({"value": value}, default=_plain).encode())
    while left:
        left = left[os.write(channel, left) :]


def _plain(value: Any) -> Any:
    """Return other kinds of numbers and sequences as the JSON types that stand for them."""
    if hasattr(value, "tolist"):  # numpy's
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)


MODES["call"] = answer_call
