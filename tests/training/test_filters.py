"""Which groups pass which filter."""

from __future__ import annotations

import pytest

from whet.config import load_config
from whet.errors import UserError
from whet.training.batch import filter_names, keep_rule
from whet.types import Prompt, Sample


def group(*scores: float, **others: list[float]) -> list[Sample]:
    prompt = Prompt("row", [1], "?")
    samples = [Sample.written(prompt, [5], [-1.0], "stop", index=i) for i in range(len(scores))]
    for i, sample in enumerate(samples):
        sample.scores = {"overall": scores[i], **{name: values[i] for name, values in others.items()}}
    return samples


def test_no_filter_keeps_everything():
    assert keep_rule(load_config([]))(group(1.0, 1.0))
    assert filter_names(load_config([])) == ""


@pytest.mark.parametrize("metric", ["overall", "reward", "seq_reward"])
def test_dynamic_sampling_drops_groups_whose_metric_is_all_equal(metric):
    keep = keep_rule(load_config(["algorithm.filter_groups.enable=true", f"algorithm.filter_groups.metric={metric}"]))
    assert not keep(group(0.7, 0.7, 0.7))
    assert keep(group(0.7, 0.7, 0.8))
    assert keep(group(0.7))  # alone, a sample is not equal to anything


@pytest.mark.parametrize("given", ["acc", "accuracy"])
def test_dynamic_sampling_looks_at_the_metric_named(given):
    keep = keep_rule(load_config(["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"]))
    assert not keep(group(0.1, 0.9, **{given: [1.0, 1.0]}))
    assert keep(group(0.5, 0.5, **{given: [0.0, 1.0]}))


def test_online_filtering_bounds_are_strict():
    keep = keep_rule(
        load_config(["algorithm.online_filtering=true", "algorithm.filter_low=0.25", "algorithm.filter_high=0.75"])
    )
    assert [keep(group(*scores)) for scores in [(0.0, 0.5), (1.0, 0.5), (0.0, 1.0)]] == [False, False, True]


def test_rejection_drops_only_all_zero_and_all_one():
    keep = keep_rule(load_config(["trainer.rejection_sample=true"]))
    groups = [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5)]
    assert [keep(group(*scores)) for scores in groups] == [False, False, True, True]


def test_filters_combine():
    config = load_config(["algorithm.online_filtering=true", "algorithm.filter_groups.enable=true"])
    keep = keep_rule(config)
    assert [keep(group(*scores)) for scores in [(0.5, 0.5), (0.0, 1.0), (1.0, 0.999)]] == [False, True, False]
    assert filter_names(config) == "algorithm.filter_groups and algorithm.online_filtering"


def test_a_score_that_nobody_gives_is_named():
    keep = keep_rule(load_config(["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acurracy"]))
    with pytest.raises(UserError, match=r"algorithm\.filter_groups\.metric=acurracy: .* only accuracy, overall"):
        keep(group(0.0, 1.0, accuracy=[0.0, 1.0]))


def test_failed_rewards_count_with_their_fallback():
    keep = keep_rule(load_config(["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=accuracy"]))
    samples = group(0.0, 0.0)
    for sample in samples:
        sample.failure = "timeout"
    assert not keep(samples)
    mixed = group(0.0, 1.0, accuracy=[0.0, 1.0])
    mixed[0].scores, mixed[0].failure = {"overall": 0.0}, "raised"
    assert keep(mixed)
