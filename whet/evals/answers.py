"""Responses to a question, from any source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from whet.types import Sample


@dataclass(slots=True)
class Answer:
    """One response."""

    text: str
    finish: str  # stop, length or abort
    length: int  # tokens, or words where nobody counted tokens
    failure: str | None = None  # why there is none
    end: str | None = None  # why the episode ended, with an environment
    turns: int = 1
    earned: float = 0.0  # rewards of the environment in all
    accuracy: float | None = None  # as the environment reports it

    @classmethod
    def of(cls, sample: Sample, text: str) -> Answer:
        """Return the answer that a sample holds."""
        rewards, accuracy = sum(sample.turn_rewards), sample.info.get("accuracy")
        return cls(text, sample.finish, len(sample.ids), sample.failure, sample.end, sample.turns, rewards, accuracy)

    def as_record(self) -> dict[str, Any]:
        """Return it as a journal's record."""
        return asdict(self)
