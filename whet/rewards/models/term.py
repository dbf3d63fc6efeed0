"""A reward model as a term of the reward: groups are scored one after the other, in one thread.

Passes hold samples of one call only. Which groups wait at the same time is a matter of chance, and the shape of a pass
changes the last bits of scores: runs would not repeat to the bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whet.errors import UserError
from whet.rewards.models.render import Reads, Row, UnreadableError
from whet.rewards.protocol import TermFailure, TermScore
from whet.rewards.steps import BLANK_LINE, Piece, reduced, step_ends
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.models.classifier import Classifier


@dataclass(frozen=True, slots=True)
class Steps:
    """Scores of steps: where they end, and what is made of their scores."""

    piece: Piece  # the text of a token of the policy
    separator: str = BLANK_LINE
    reduce: str | None = None  # None places each score on its step's last token


class ModelTerm:
    """Scores of a reward model."""

    name = "model"

    def __init__(
        self,
        load: Callable[[], Classifier],
        read: Reads,
        budget: int,
        steps: Steps | None = None,
        together: bool = False,
        check: Callable[[Prompt], None] | None = None,
    ) -> None:
        """`load` reads the weights, `read` makes the model's tokens of a sample, `check` looks at rows of the data."""
        self.together = together
        self._load, self._read, self._budget, self._steps, self._check = load, read, budget, steps, check
        self._model: Classifier | None = None
        self._thread = ThreadPoolExecutor(1, "whet-reward-model")

    async def check(self, prompts: list[Prompt]) -> None:
        """Look at rows: templates must be able to write them."""
        for prompt in prompts:
            if self._check is not None:
                self._check(prompt)

    def ready(self) -> None:
        """Load the weights."""
        self._model = self._load()

    async def score(self, samples: list[Sample]) -> list[TermScore | TermFailure]:
        """Score samples; those that the model cannot read have failed."""
        ends = [self._ends(sample) for sample in samples]
        rows = [self._row(sample, at) for sample, at in zip(samples, ends)]
        readable = [row for row in rows if isinstance(row, Row)]
        loop = asyncio.get_running_loop()
        scores = iter(await loop.run_in_executor(self._thread, self._pass, readable))
        return [
            row if isinstance(row, TermFailure) else self._result(row, at, next(scores)) for row, at in zip(rows, ends)
        ]

    def close(self) -> None:
        """End the thread; the weights go with the object."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._model = None

    def _ends(self, sample: Sample) -> list[int]:
        if self._steps is None:
            return [len(sample.ids)]
        return step_ends(sample, self._steps.piece, self._steps.separator)

    def _row(self, sample: Sample, ends: list[int]) -> Row | TermFailure:
        if not sample.ids:
            return TermFailure("bad result", "empty", "the response has no tokens")
        try:
            return self._read(sample, ends)
        except UnreadableError as error:
            return TermFailure("bad result", "unreadable", str(error))
        except UserError as error:  # of a template, on this row or response
            return TermFailure("raised", "template", str(error))

    def _result(self, row: Row, ends: list[int], scores: list[float]) -> TermScore:
        numbers = {"cut": 1.0} if row.cut else {}
        if self._steps is None:
            return TermScore(scores[0], numbers)
        numbers["steps"] = float(len(scores))
        if self._steps.reduce is not None:
            return TermScore(reduced(scores, self._steps.reduce), numbers)
        return TermScore(reduced(scores, "mean"), numbers, dict(zip(ends, scores)))

    def _pass(self, rows: Sequence[Row]) -> list[list[float]]:
        assert self._model is not None, "weights are loaded before the first sample is scored"
        return self._model.scores([row.ids for row in rows], [row.places for row in rows], self._budget)
