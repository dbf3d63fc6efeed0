"""What scores samples, and a term of it: a reward model or a judge beside functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whet.rewards.inputs import Decode
from whet.rewards.result import Scores
from whet.types import Prompt, Sample


class SampleScorer(Protocol):
    """Fills `scores` and `failure` of samples. One that was opened is closed, whatever happens."""

    decode: Decode | None  # makes texts of turns; set by what has a tokenizer

    def __enter__(self) -> SampleScorer: ...

    def __exit__(self, *_: object) -> None: ...

    def check(self, prompts: list[Prompt]) -> None:
        """Try rows before any weight is loaded; UserError for what could never be scored."""
        ...

    def ready(self) -> None:
        """Load weights that scoring needs; called once, after `check`, when the policy has its memory."""
        ...

    def trial(self, samples: list[Sample], end: float) -> list[Scores | None]:
        """Score samples without reporting anything; None for those without a score by the time `end`."""
        ...

    def score(self, samples: list[Sample], progress: Callable[[int], None] | None = None) -> dict[str, float]:
        """Score samples and count failures; `progress` hears how many just finished."""
        ...

    async def score_async(self, samples: list[Sample]) -> dict[str, float]:
        """Do the same beside other calls, in any event loop."""
        ...

    def require_scores(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if none of these samples has a score."""
        ...

    def scores_batches(self) -> bool:
        """True if all samples of a step are scored in one call."""
        ...

    def wants(self, name: str) -> bool:
        """True if "images", "videos" or "turns" are asked for."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


@dataclass(slots=True)
class TermScore:
    """Result of a term for one sample."""

    score: float  # counts with the term's weight, unless there are steps
    scores: dict[str, float] = field(default_factory=dict)  # further numbers, logged
    steps: dict[int, float] | None = None  # reward by the number of response tokens up to a step's end
    note: str | None = None  # text for the sample log


@dataclass(slots=True)
class TermFailure:
    """Why a term has no score for a sample."""

    failure: str  # of `failures.FAILURES`
    cause: str  # failures with the same one are reported once
    detail: str
    note: str | None = None  # text for the sample log, which says why


class Term(Protocol):
    """A part of the reward that is computed in this process; used within one event loop."""

    name: str
    together: bool  # all samples of a step in one call

    async def check(self, prompts: list[Prompt]) -> None:
        """Try rows before any weight is loaded; UserError for what could never be scored."""
        ...

    def ready(self) -> None:
        """Load weights."""
        ...

    async def score(self, samples: list[Sample]) -> list[TermScore | TermFailure]:
        """Score samples, in their order; those of one group come in one call."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...
