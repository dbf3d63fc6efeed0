"""Several rewards as one: a weighted sum, computed in the worker that runs all of them.

A sample has `overall`, the sum; the score of each part under the part's name; and what else the parts return. A name
that two parts use belongs to the first of them, the others' have the part's name before theirs. A part that fails fails
the sample: half a sum is no reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.rewards.function import COMBINE_KEY
from whet.rewards.loading import find_function, load_module
from whet.rewards.result import Scores
from whet.rewards.returned import BadResultError, read_batch, read_scores
from whet.rewards.setup import Part
from whet.rewards.signature import BATCH, SEQUENTIAL, CallForm, RewardFunction, bind


@dataclass(frozen=True, slots=True)
class Combination:
    """Parts with their functions; called as one function is."""

    parts: tuple[tuple[Part, RewardFunction], ...]

    @property
    def form(self) -> CallForm:
        """Return the form of the whole: batches as soon as one part takes them."""
        return BATCH if any(function.form.batch for _, function in self.parts) else SEQUENTIAL

    @property
    def wanted(self) -> frozenset[str]:
        """Everything that a part asks for."""
        return frozenset(name for _, function in self.parts for name in function.wanted)

    def __call__(self, inputs: list[dict[str, Any]]) -> Any:
        """Score the inputs with every part; a list of scores, or those of the only input."""
        totals: list[Scores] = [{"overall": 0.0} for _ in inputs]
        for part, function in self.parts:
            try:
                found = _scores(function, inputs)
            except BadResultError as error:
                raise BadResultError(f"{COMBINE_KEY}.{part.name}: {error}") from error
            except Exception as error:
                error.add_note(f"in the part {part.name} of {COMBINE_KEY}")
                raise
            for total, scores in zip(totals, found):
                _add(total, part, scores)
        return totals if self.form.batch else totals[0]


def load(parts: tuple[Part, ...], declared: str | None) -> Combination:
    """Load and bind the functions of all parts; UserError names the part that cannot be."""
    found = []
    for part in parts:
        try:
            module = load_module(part.source)
            kind = declared or getattr(module, "REWARD_TYPE", None)
            needs = getattr(module, "REWARD_NEEDS", ())
            found.append((part, bind(find_function(module, part.source), part.source, kind, part.options, needs)))
        except UserError as error:
            raise UserError(f"{COMBINE_KEY}.{part.name}: {error}") from error
    return Combination(tuple(found))


def _scores(function: RewardFunction, inputs: list[dict[str, Any]]) -> list[Scores]:
    if function.form.batch:
        values = read_batch(function(list(inputs)), len(inputs))
    else:
        values = [function([row]) for row in inputs]
    return [read_scores(value, function.form.verl) for value in values]


def _add(total: Scores, part: Part, scores: Mapping[str, float]) -> None:
    """Add the scores of a part to those of the sample."""
    total["overall"] += part.weight * scores["overall"]
    total[part.name] = scores["overall"]
    for name, number in scores.items():
        if name not in ("overall", part.name):
            total[name if name not in total else f"{part.name}_{name}"] = number
