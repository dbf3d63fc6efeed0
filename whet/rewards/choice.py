"""The reward that a config asks for: a function, a scorer, several of them, or a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.rewards.function import KEY, RewardSource, is_scorer, read_source
from whet.rewards.setup import Part

if TYPE_CHECKING:
    from whet.config.schema.reward import RewardConfig

BY_SOURCE = "data_source"  # the part of a combination that each row's data source chooses
URL = "worker.reward.url"


@dataclass(frozen=True, slots=True)
class Choice:
    """What workers load, and what to call it."""

    label: str  # key=value, for messages
    source: RewardSource
    options: dict[str, Any]
    parts: tuple[Part, ...] = ()
    scorers: frozenset[str] = field(default_factory=frozenset)  # of whet's own, by name
    by_source: bool = False  # scorers are chosen by each row's data source


def choose(spec: str, config: RewardConfig, resolve: Callable[[str], Path], file: str) -> Choice:
    """Return the reward of `spec`, or where that is empty of `combine`, of `url`, or of the rows' data sources.

    `file` is where requests to a server keep their rate.
    """
    options = dict(config.reward_function_kwargs)
    if spec or not (config.combine or config.url):
        named = frozenset({spec}) if spec and is_scorer(spec) else frozenset[str]()
        label = f"{KEY}={spec or '(by data_source)'}"
        return Choice(label, read_source(spec, resolve), options, (), named, not spec)
    if config.combine:
        from whet.rewards.combination_choice import combined

        return combined(config, resolve)
    assert config.url is not None
    settings = {
        "url": config.url,
        "token_env": config.remote.token_env,
        "retries": config.remote.retries,
        "file": file,
        "requests_per_second": config.remote.requests_per_second,
        "tokens_per_second": config.remote.tokens_per_second,
    }
    source = RewardSource("whet.rewards.remote", "remote", "from whet.rewards.remote import remote\n", is_scorer=True)
    return Choice(f"{URL}={config.url}", source, settings)


def by_data_source(config: RewardConfig) -> bool:
    """True if the data source of each row chooses its scorer."""
    return BY_SOURCE in config.parts or not config.is_named


def with_match(spec: str, config: RewardConfig, match: str) -> dict[str, Any]:
    """Return the options of a reward, with `match` for scorers that can give an original's numbers."""
    options = config.reward_function_kwargs
    if spec and not is_scorer(spec):
        return options
    from whet.rewards.dispatch import knows_match

    if not spec and config.combine:
        known = {part: "" if part == BY_SOURCE else part for part in config.parts if is_scorer(part)}
        matched = {part: {"match": match} for part, name in known.items() if knows_match(name, match)}
        return {**options, **{part: {**given, **(options.get(part) or {})} for part, given in matched.items()}}
    if (spec or not config.url) and is_scorer(spec) and knows_match(spec, match):
        return {"match": match, **options}
    return options
