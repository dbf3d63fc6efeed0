"""Conversions of single values, by the name that a row gives. `SKIP` leaves whet's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whet.config.schema.trainer import LOGGERS

SKIP = object()
_DTYPES = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.float16": "fp16", "half": "fp16"}


def _files(value: Any) -> Any:
    names = value if isinstance(value, list) else [value]
    text = ",".join(str(item) for item in names if item not in (None, ""))
    return text or SKIP


def _loggers(value: Any) -> Any:
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    kept = [name for name in dict.fromkeys([*names, "file"]) if name in LOGGERS.names]
    return kept if "console" in kept else ["console", *kept]


def _positive(value: Any) -> Any:
    """Return -1 for null and numbers below 1; what is no number stays, and whet's key refuses it."""
    return -1 if value in (None, "") or (isinstance(value, int | float) and value < 1) else value


def _one_less(value: Any) -> Any:
    return max(0, value - 1) if isinstance(value, int) else value if value else 0


def _metric(value: Any) -> Any:
    return "overall" if value in (None, "", "reward", "seq_reward", "seq_final_reward", "score") else value


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "same": lambda value: SKIP if value is None else value,
    "path": lambda value: SKIP if value in (None, "") else str(value),
    "files": _files,
    "loggers": _loggers,
    "frequency": _positive,
    "top_k": _positive,
    "metric": _metric,
    "all_if_null": _positive,
    "seed": lambda value: SKIP if value in (None, "") else value,
    "count": lambda value: value or 0,
    "switch": lambda value: value or False,
    "one_less": _one_less,
    "loss_type": lambda value: "default" if value in (None, "", "vanilla") else value,
    "listed": lambda value: SKIP if value is None else value if isinstance(value, list) else [value],
    "dtype": lambda value: SKIP if value is None else _DTYPES.get(str(value), str(value)),
}


def convert(name: str, value: Any) -> Any:
    """Return a value of another system as whet's key takes it, or SKIP."""
    return CONVERSIONS[name](value)
