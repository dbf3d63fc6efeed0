"""Built-in scorers as reward functions: chosen by name, or by the `data_source` of each row as verl does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from whet.errors import UserError
from whet.rewards.answers.process import require_maths
from whet.rewards.registry import SCORERS, Score, Scorer, check_match

KEY = "worker.reward.reward_function"
HOW = f"name a scorer ({KEY}=math) or a function of yours ({KEY}=path.py:function)"


def scorer_named(name: str) -> Callable[..., Score]:
    """The scorer of this name as a reward function that takes its options."""
    scorer = SCORERS.find(name)

    def function(reward_input: Mapping[str, Any], **options: Any) -> Score:
        return score_with(scorer, reward_input, options)

    return _with_options(function, name, scorer.options)


def by_data_source() -> Callable[..., Score]:
    """A reward function that takes the scorer of each row's data source; options go to the scorers that have them."""
    options: dict[str, inspect.Parameter] = {}
    for name in SCORERS.names:
        for option, parameter in SCORERS.find(name).options.items():
            options.setdefault(option, parameter)
    known = tuple(dict.fromkeys(match for name in SCORERS.names for match in SCORERS.find(name).matches))

    def function(reward_input: Mapping[str, Any], **given: Any) -> Score:
        check_match(given.get("match", "whet"), "of each data source", known)
        return score_row(reward_input, given)

    return _with_options(function, "by_data_source", options)


def score_row(row: Mapping[str, Any], options: dict[str, Any]) -> Score:
    """Score a row's response with the scorer of its data source; UserError for a source that no scorer is for."""
    scorer = SCORERS.find(name_for(row.get("data_source")))
    known = {name: value for name, value in options.items() if name in scorer.options}
    if known.get("match") not in (None, "whet", *scorer.matches):
        del known["match"]  # the original has no scorer for this data: ours stands in
    return score_with(scorer, row, known)


def score_with(scorer: Scorer, row: Mapping[str, Any], options: dict[str, Any]) -> Score:
    """Score a row's response."""
    given = dict(options)
    parameters = inspect.signature(scorer.score).parameters
    if "response_length" in parameters:
        given["response_length"] = row.get("response_length", 0)
    if "extra_info" in parameters:
        given["extra_info"] = row.get("extra_info")
    return scorer.score(row["response"], row.get("ground_truth"), **given)


def name_for(data_source: Any) -> str:
    """Name of the scorer for a data source; UserError with the known ones where there is none."""
    if not isinstance(data_source, str) or not data_source:
        raise UserError(f"{KEY} is not set, and the row has no data_source by which to choose a scorer: {HOW}")
    name = SCORERS.for_source(data_source)
    if name is None:
        known = ", ".join(source for each in SCORERS.names for source in SCORERS.find(each).data_sources)
        raise UserError(f"{KEY} is not set, and no scorer is for data_source={data_source!r}: {HOW}. Known: {known}")
    return name


def check_needs(name: str) -> None:
    """Raise UserError if there is no scorer of this name, or if a package is missing that it needs."""
    if "math" in SCORERS.find(name).needs:
        require_maths(name)


def runs_programs(name: str) -> bool:
    """True if the scorer of this name runs programs in the sandbox."""
    return "sandbox" in SCORERS.find(name).needs


def knows_match(name: str, match: str) -> bool:
    """True if the scorer of this name, or (for an empty one) any of them, can give the numbers of an original."""
    if match == "whet":
        return False
    names = (name,) if name else SCORERS.names
    return any(match in SCORERS.find(each).matches for each in names)


def check_sources(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> set[str]:
    """Return the scorers of these rows (name and columns); UserError for the first whose source no scorer is for."""
    names = set()
    for uid, row in rows:
        try:
            names.add(name_for(row.get("data_source")))
            check_needs(name_for(row.get("data_source")))
        except UserError as error:
            raise UserError(f"row {uid}: {error}") from error
    return names


def _with_options(
    function: Callable[..., Score], name: str, options: Mapping[str, inspect.Parameter]
) -> Callable[..., Score]:
    """Give a function the signature that `bind` checks options by."""
    row = inspect.Parameter("reward_input", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options.values()]
    function.__signature__ = inspect.Signature([row, *keywords])  # type: ignore[attr-defined]
    function.__name__ = name
    return function
