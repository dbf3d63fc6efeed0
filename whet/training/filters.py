"""Which groups (the samples of one prompt) are worth training on, by the rules that the config switches on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from whet.config import Config
from whet.errors import UserError
from whet.types import Sample

Rule = Callable[[Sequence[Sample]], bool]

# Other words for a score, looked for where the reward function gives none of that name: verl's words for the reward.
_SYNONYMS = {
    **dict.fromkeys(("reward", "score", "seq_reward", "seq_final_reward"), "overall"),
    "acc": "accuracy",
    "accuracy": "acc",
}


def keep_rule(config: Config) -> Rule:
    """Whether a group passes every filter of the config; a config without filters keeps all."""
    rules = [rule for _, rule in _rules(config)]
    return lambda group: all(rule(group) for rule in rules)


def filter_names(config: Config) -> str:
    """The keys that filter, for messages."""
    return " and ".join(name for name, _ in _rules(config))


def _rules(config: Config) -> Iterator[tuple[str, Rule]]:
    algorithm = config.algorithm
    if algorithm.filter_groups.enable:
        metric = algorithm.filter_groups.metric
        yield "algorithm.filter_groups", lambda group: _differs(scores_of(group, metric, "filter_groups.metric"))
    if algorithm.online_filtering:
        low, high, name = algorithm.filter_low, algorithm.filter_high, algorithm.filter_key
        yield "algorithm.online_filtering", lambda group: low < _mean(scores_of(group, name, "filter_key")) < high
    if config.trainer.rejection_sample:
        yield "trainer.rejection_sample", lambda group: {s.reward for s in group} not in ({0.0}, {1.0})


def scores_of(group: Sequence[Sample], name: str, key: str) -> list[float]:
    """The score of that name of every sample; a sample whose reward failed counts with its fallback."""
    given = {score for sample in group if sample.failure is None for score in sample.scores}
    found = name if name in given or not given else _SYNONYMS.get(name, name)
    if given and found not in given:
        raise UserError(
            f"algorithm.{key}={name}: the reward function gives no score of that name, only {', '.join(sorted(given))}"
        )
    return [sample.scores.get(found, sample.reward) for sample in group]


def _differs(scores: Sequence[float]) -> bool:
    return len(scores) == 1 or any(score != scores[0] for score in scores)


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
