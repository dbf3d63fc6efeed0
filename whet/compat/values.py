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
    names = [str(name) for name in ([value] if isinstance(value, str) else value or [])]
    kept = [name for name in dict.fromkeys([*names, "file"]) if name in LOGGERS.names]
    return kept if "console" in kept else ["console", *kept]


def _frequency(value: Any) -> Any:
    return value if isinstance(value, int) and value > 0 else -1


def _metric(value: Any) -> Any:
    return "overall" if value in (None, "", "reward", "seq_reward", "seq_final_reward", "score") else value


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "same": lambda value: SKIP if value is None else value,
    "path": lambda value: SKIP if value in (None, "") else str(value),
    "files": _files,
    "loggers": _loggers,
    "frequency": _frequency,
    "metric": _metric,
    "all_if_null": lambda value: value if isinstance(value, int) and value > 0 else -1,
    "seed": lambda value: value if isinstance(value, int) else SKIP,
    "count": lambda value: value or 0,
    "switch": lambda value: bool(value),
    "one_less": lambda value: max(0, int(value or 0) - 1),
    "loss_type": lambda value: "default" if value in (None, "", "vanilla") else value,
    "listed": lambda value: SKIP if value is None else list(value),
    "dtype": lambda value: SKIP if value is None else _DTYPES.get(str(value), str(value)),
}


def convert(name: str, value: Any) -> Any:
    """Return a value of another system as whet's key takes it, or SKIP."""
    return CONVERSIONS[name](value)
