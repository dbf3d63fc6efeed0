"""The rewards that `worker.reward.combine` adds up, each with its weight, its name among the scores and its options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from whet.errors import UserError
from whet.rewards.choice import BY_SOURCE, Choice
from whet.rewards.function import COMBINE_KEY, KWARGS_KEY, RewardSource, is_scorer, read_source
from whet.rewards.result import RESERVED
from whet.rewards.setup import Part

if TYPE_CHECKING:
    from whet.config.schema.reward import RewardConfig

_NAMED = ("overall", "accuracy", *RESERVED)


def combined(config: RewardConfig, resolve: Callable[[str], Path]) -> Choice:
    """Return the reward of `combine`."""
    weights = config.parts
    for spec in config.reward_function_kwargs:
        if not any(part == spec or part.startswith(f"{spec}.") for part in weights):
            raise UserError(
                f"{KWARGS_KEY}.{spec}: with {COMBINE_KEY} the options of each part stand under its name, and there is "
                f"no part {spec}; there are {', '.join(weights)}"
            )
    parts: list[Part] = []
    for spec, weight in weights.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        if not number or abs(weight) > 1e6:
            raise UserError(f"{COMBINE_KEY}.{spec}={weight!r}: the weight must be a number within ±1e6")
        given = config.options_of(spec) or {}
        if not isinstance(given, Mapping):
            raise UserError(f"{KWARGS_KEY}.{spec}={given!r}: expected the part's options, such as {{name: value}}")
        try:
            source = read_source("" if spec == BY_SOURCE else spec, resolve)
        except UserError as error:
            raise UserError(f"{COMBINE_KEY}: {error}") from error
        parts.append(Part(_name(spec, source, parts), float(weight), source, dict(given)))
    scorers = frozenset(spec for spec in weights if is_scorer(spec) and spec != BY_SOURCE)
    shown = ", ".join(f"{spec}: {weight:g}" for spec, weight in weights.items())
    return Choice(f"{COMBINE_KEY}={{{shown}}}", parts[0].source, {}, tuple(parts), scorers, BY_SOURCE in weights)


def _name(spec: str, source: RewardSource, others: list[Part]) -> str:
    """Name of a part among the scores: the scorer's, the function's, or the file's where the function is main."""
    name = spec if is_scorer(spec) else source.function
    name = Path(source.path).stem if name == "main" else name
    taken = {*_NAMED, *(part.name for part in others)}
    return next(each for each in (name, *(f"{name}_{n}" for n in range(2, 1000))) if each not in taken)
