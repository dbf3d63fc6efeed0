"""Ground truths as data sets write them: texts, numbers, lists, and JSON texts of these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.errors import UserError

MOST = 1000  # answers that a row may accept
# Under these names a mapping holds its answers (search data, chat data).
_NAMES = ("target", "ground_truth", "answer", "answers")


def decoded(truth: Any) -> Any:
    """The truth, read from its JSON text if that holds a list or a mapping (`["2"]`, `{"inputs": ...}`)."""
    if isinstance(truth, str) and truth.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(truth)
        except (ValueError, RecursionError):  # an interval, such as [0, 1)
            return truth
        return value if isinstance(value, dict) or _is_texts(value) else truth
    return truth.tolist() if hasattr(truth, "tolist") else truth  # numpy arrays and scalars, as parquet gives them


def accepted(truth: Any) -> list[str]:
    """Every answer that a row accepts, as text; UserError on something that holds none."""
    truth = decoded(truth)
    if isinstance(truth, Mapping):
        name = next((name for name in _NAMES if name in truth), None)
        if name is None:
            raise UserError(f"the ground truth {_short(truth)} is a mapping without {' or '.join(_NAMES)}")
        truth = decoded(truth[name])
    values = list(truth) if isinstance(truth, (list, tuple, set)) else [truth]
    return [_as_text(value) for value in values[:MOST]]


def _is_texts(value: Any) -> bool:
    """True for a list of texts: `["2"]` names answers, `[0, 1]` is one answer, an interval."""
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _as_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, (str, int, float)):
        return str(value)
    if value is None:
        raise UserError("the ground truth is empty: the row has no answer to compare with")
    raise UserError(f"the ground truth {_short(value)} is {type(value).__name__}; expected text, a number or a list")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
