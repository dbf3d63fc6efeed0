"""A turn of the model's as answers of every API are made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Called:
    """A function to be called."""

    id: str
    name: str
    arguments: str  # JSON

    @property
    def values(self) -> dict[str, Any]:
        """Arguments as an object; what is no object stands under `value`."""
        try:
            read = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            read = self.arguments
        return read if isinstance(read, dict) else {"value": read}


@dataclass(slots=True)
class Turn:
    """A whole turn, or what a piece adds to it."""

    text: str = ""
    reasoning: str = ""
    calls: list[Called] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ended."""

    finish: Finish
    prompt_tokens: int
    tokens: int
    stop: str | None = None  # the stop text that ended it
