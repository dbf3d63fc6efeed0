"""Responses to a question, from any source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Answer:
    """One response."""

    text: str
    finish: str  # stop, length or abort
    length: int  # tokens, or words where nobody counted tokens
    failure: str | None = None  # why there is none

    def as_record(self) -> dict[str, Any]:
        """Return it as a journal's record."""
        return asdict(self)
