"""Scorers by name: one file in `whet/rewards/scorers/` each, whose name is the scorer's.

Names are found by listing the folder, which imports nothing; a scorer is imported when it is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.config.problems import hint
from whet.config.registry import Registry
from whet.errors import UserError

Score = dict[str, Any]  # "overall" and other numbers; texts are for people and not logged
# Parameters of a scorer that come from the sample, or from its caller in Python; the others are options.
NO_OPTIONS = ("response", "ground_truth", "response_length", "extra_info", "grader")


@dataclass(frozen=True)
class Scorer:
    """A way to score responses, and the data sets that it is for.

    `score(response, ground_truth, *, match="whet", ...)` returns at least `overall`. Its further keyword parameters are
    options, but for `response_length` (tokens) and `extra_info` (the row), which come from the sample.
    """

    score: Callable[..., Score]
    data_sources: tuple[str, ...]  # patterns of verl's data_source column
    summary: str  # one line for the table of docs/rewards.md
    matches: tuple[str, ...] = ()  # originals whose numbers `match` reproduces
    needs: tuple[str, ...] = ()  # packages that are not installed with whet

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """Parameters that the config may set, by name."""
        parameters = inspect.signature(self.score).parameters
        return {name: each for name, each in parameters.items() if name not in NO_OPTIONS}

    def is_for(self, data_source: str) -> bool:
        """True if the scorer is the one for rows of this data source."""
        return any(fnmatchcase(data_source, pattern) for pattern in self.data_sources)


class Scorers(Registry):
    """All scorers: files of `whet/rewards/scorers/`, and those of installed packages."""

    def find(self, name: str, file: Path | None = None) -> Scorer:
        """Return the scorer of this name."""
        if file is None and name not in self.names:
            raise UserError(
                f"{self.key}={name}: there is no scorer of that name; there are {', '.join(self.names)}. A function of "
                f"yours is named as path.py:function{hint(name, self.names)}"
            )
        found: Scorer = super().find(name, file)
        return found

    def for_source(self, data_source: str) -> str | None:
        """Name of the scorer for rows of this data source, or None where there is none."""
        return next((name for name in self.names if self.find(name).is_for(data_source)), None)


SCORERS = Scorers("worker.reward.reward_function", "whet.rewards.scorers", "SCORER", entry_points="whet.scorers")


def check_match(match: str, scorer: str, known: tuple[str, ...]) -> None:
    """Raise UserError on an original that the scorer does not know."""
    if match != "whet" and match not in known:
        raise UserError(f"match={match}: the scorer {scorer} knows {', '.join(('whet', *known))}{hint(match, known)}")
