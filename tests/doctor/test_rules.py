"""Every rule on injected metrics: it holds for its fault, from the right step, and for nothing near it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from whet.doctor.findings import Rule
from whet.doctor.rules import rules_for
from whet.doctor.rules.clipping import ClippedRatios
from whet.doctor.rules.collapsed import CollapsedReward
from whet.doctor.rules.entropy import EntropyCollapse
from whet.doctor.rules.failing_rewards import FailingRewards
from whet.doctor.rules.fallen import FallenReward
from whet.doctor.rules.flat import FlatRun
from whet.doctor.rules.gradients import ExplodingGradients
from whet.doctor.rules.idle import IdleDevice
from whet.doctor.rules.kl import KlBlowUp
from whet.doctor.rules.length import lengthened, shortened
from whet.doctor.rules.opposed import OpposedScores
from whet.doctor.rules.slow_rewards import SlowRewards
from whet.doctor.rules.staleness import StaleSamples


def holds_at(rule: Rule, metrics: Iterable[dict[str, float]]) -> list[int]:
    """Steps at which a rule holds, counted from 1."""
    return [step for step, each in enumerate(metrics, 1) if rule.observe(each) is not None]


def columns(**named: list[float]) -> list[dict[str, float]]:
    """Metrics by step from columns; `a__b` is a/b."""
    names = [name.replace("__", "/") for name in named]
    return [dict(zip(names, values)) for values in zip(*named.values(), strict=True)]


def test_entropy_that_collapses_on_unsolved_prompts() -> None:
    entropy = [1.0] * 5 + [0.05] * 6
    unsolved = columns(actor__entropy=entropy, batch__solve_all=[0.1] * 11)
    assert holds_at(EntropyCollapse(), unsolved) == [10, 11]
    solved = columns(actor__entropy=entropy, batch__solve_all=[0.1] * 5 + [0.9] * 6)
    assert holds_at(EntropyCollapse(), solved) == []
    halved = columns(actor__entropy=[1.0] * 5 + [0.5] * 6, batch__solve_all=[0.1] * 11)
    assert holds_at(EntropyCollapse(), halved) == []


@pytest.mark.parametrize("name", ["actor/kl_loss", "actor/reward_kl"])
def test_kl_that_blows_up(name: str) -> None:
    values = [0.1, 2.0, 2.0, 0.1, 2.0, math.nan, math.inf, 3.0]
    assert holds_at(KlBlowUp(), [{name: value} for value in values]) == [7, 8]
    assert holds_at(KlBlowUp(), [{"actor/entropy": 5.0}] * 5) == []


def test_gradients_that_explode() -> None:
    calm = [{"actor/grad_norm": 0.5 + 0.1 * (i % 3)} for i in range(10)]
    assert holds_at(ExplodingGradients(), [*calm, *[{"actor/grad_norm": 50.0}] * 4]) == [13, 14]
    assert holds_at(ExplodingGradients(), [*calm, {"actor/grad_norm": 50.0}, *calm]) == []  # one bad batch
    assert holds_at(ExplodingGradients(), [{"actor/grad_norm": 0.5, "actor/grad_skipped": 1.0}] * 3) == [3]
    assert holds_at(ExplodingGradients(), [{"actor/grad_norm": math.nan}] * 3) == [3]
    assert holds_at(ExplodingGradients(), [{"actor/grad_norm": 50.0}] * 20) == []  # large, and always so


def test_responses_that_collapse_or_grow_without_a_gain() -> None:
    same = [0.3] * 11
    risen = [0.3] * 5 + [0.6] * 6
    short, long = [100.0] * 5 + [10.0] * 6, [100.0] * 5 + [500.0] * 6
    for rule, lengths in ((shortened, short), (lengthened, long)):
        assert holds_at(rule(), columns(response_length__mean=lengths, reward__overall=same)) == [10, 11]
        assert holds_at(rule(), columns(response_length__mean=lengths, reward__overall=risen)) == []
        assert holds_at(rule(), columns(response_length__mean=[100.0] * 11, reward__overall=same)) == []
    assert holds_at(shortened(), columns(response_length__mean=long, reward__overall=same)) == []
    assert holds_at(lengthened(), columns(response_length__mean=short, reward__overall=same)) == []


@pytest.mark.parametrize("name", ["actor/pg_clipfrac_higher", "actor/pg_clipfrac_lower"])
def test_ratios_that_are_clipped(name: str) -> None:
    shares = [0.6, 0.7, 0.1, 0.6, 0.7, 0.8]
    assert holds_at(ClippedRatios(), [{name: share} for share in shares]) == [6]


def test_rewards_that_are_slow() -> None:
    slow = {"timing_s/reward": 6.0, "timing_s/step": 10.0}
    assert holds_at(SlowRewards(), [slow] * 6) == [5, 6]
    assert holds_at(SlowRewards(), [{"timing_s/reward": 0.6, "timing_s/step": 0.7}] * 6) == []  # a tiny run
    assert holds_at(SlowRewards(), [{"timing_s/reward": 4.0, "timing_s/step": 10.0}] * 6) == []


def test_samples_that_are_stale() -> None:
    def step(age: float, gap: float) -> dict[str, float]:
        return {"async/staleness_mean": age, "rollout/log_prob_diff_mean": gap}

    assert holds_at(StaleSamples(), [step(5.0, 0.01)] * 3) == [3]
    assert holds_at(StaleSamples(), [step(1.2, 0.2)] * 3) == [3]
    assert holds_at(StaleSamples(), [step(1.2, 0.01)] * 6) == []
    assert holds_at(StaleSamples(), [{"rollout/log_prob_diff_mean": 0.5}] * 6) == []  # synchronous: rule `drift`


def test_reward_that_is_below_the_start() -> None:
    def rewards(values: list[float]) -> list[dict[str, float]]:
        return [{"reward/overall": value, "actor/lr": 1.0} for value in values]

    assert holds_at(CollapsedReward(), rewards([0.4] * 5 + [0.05] * 6)) == [10, 11]
    assert holds_at(CollapsedReward(), rewards([0.4] * 5 + [0.3] * 6)) == []
    assert holds_at(CollapsedReward(), rewards([0.0] * 5 + [-0.5] * 6)) == []  # nothing was there to lose
    assert holds_at(CollapsedReward(), rewards([0.4] + [0.01] * 10)) == [10, 11]  # lost in the first updates


def test_a_policy_that_does_not_move() -> None:
    def step(i: int, drift: float) -> dict[str, float]:
        noise = math.sin(7.0 * i)
        return {
            "reward/overall": 0.3 + 0.02 * noise,
            "actor/entropy": 0.5 + 0.01 * noise - drift * i,
            "advantage/max": 1.0,
            "advantage/min": -1.0,
        }

    assert holds_at(FlatRun(), [step(i, 0.0) for i in range(40)]) == list(range(30, 41))
    assert holds_at(FlatRun(), [step(i, 0.002) for i in range(40)]) == []
    rests = [step(i, 0.01 if i < 30 else 0.0) for i in range(90)]
    assert holds_at(FlatRun(), rests) == []  # it has moved, and may rest
    tied = [step(i, 0.0) | {"advantage/max": 0.0, "advantage/min": 0.0} for i in range(40)]
    assert holds_at(FlatRun(), tied) == []


def test_rewards_that_fail_for_a_part() -> None:
    def step(failed: float) -> dict[str, float]:
        lengths = {"prompt_length/mean": 10.0, "response_length/mean": 10.0, "perf/total_tokens": 2000.0}
        return {"reward/failed": failed, "reward/timeout": failed, **lengths}

    assert holds_at(FailingRewards(), [step(20.0)] * 4) == [3, 4]
    assert holds_at(FailingRewards(), [step(3.0)] * 9) == []
    assert holds_at(FailingRewards(), [{"reward/failed": 3.0}] * 9) == []


def test_reward_and_accuracy_that_go_opposite_ways() -> None:
    rising, falling = [0.3] * 5 + [0.8] * 6, [0.7] * 5 + [0.2] * 6
    assert holds_at(OpposedScores(), columns(reward__overall=rising, reward__accuracy=falling)) == [10, 11]
    assert holds_at(OpposedScores(), columns(reward__overall=rising, reward__accuracy=rising)) == []
    assert holds_at(OpposedScores(), columns(reward__overall=falling, reward__accuracy=falling)) == []
    assert holds_at(OpposedScores(), columns(reward__overall=rising)) == []


def test_time_that_belongs_to_no_stage() -> None:
    waiting = {"timing_s/step": 10.0, "timing_s/rollout": 2.0, "timing_s/update": 1.0, "timing_s/validate": 9.0}
    assert holds_at(IdleDevice(), [waiting] * 6) == [5, 6]
    assert holds_at(IdleDevice(), [waiting | {"timing_s/rollout": 6.0}] * 6) == []
    assert holds_at(IdleDevice(), [waiting | {"timing_s/step": 3.9}] * 6) == []  # a tiny run
    assert holds_at(IdleDevice(), [{"timing_s/step": 9.0}] * 6) == []  # nothing is known of its stages


def test_reward_that_is_lost() -> None:
    def rewards(values: list[float]) -> list[dict[str, float]]:
        return [{"reward/overall": value} for value in values]

    rise = [0.1] * 10 + [0.8] * 10
    assert holds_at(FallenReward(), rewards([*rise, *[0.2] * 10]))[-1] == 30
    assert holds_at(FallenReward(), rewards([*rise, *[0.7] * 20])) == []
    noise = [0.5 + 0.2 * math.sin(7.0 * i) for i in range(60)]
    assert holds_at(FallenReward(), rewards(noise)) == []


def test_every_rule_says_what_to_do_and_names_its_evidence() -> None:
    names = [rule.name for rule in rules_for(100)]
    assert len(set(names)) == len(names) == 18
    assert all(rule.evidence and all("/" in each for each in rule.evidence) for rule in rules_for(100))
    assert "cut" not in [rule.name for rule in rules_for(None)]
    assert all(rule.observe({}) is None for rule in rules_for(100))


def test_a_run_that_learns_has_no_findings() -> None:
    for rule in rules_for(512):
        for step in range(60):
            rate = 1 - math.exp(-step / 15)
            sentence = rule.observe(
                {
                    "reward/overall": 0.2 + 0.7 * rate + 0.03 * math.sin(5 * step),
                    "advantage/max": 2.0,
                    "advantage/min": -2.0,
                    "actor/entropy": 0.4 - 0.25 * rate,
                    "actor/grad_norm": 0.6 + 0.3 * math.sin(3 * step),
                    "actor/kl_loss": 0.1 * rate,
                    "actor/pg_clipfrac_higher": 0.02,
                    "batch/solve_all": 0.6 * rate,
                    "response_length/mean": 120 + 90 * rate,
                    "response_length/clip_ratio": 0.02,
                    "rollout/log_prob_diff_mean": 0.01,
                    "timing_s/reward": 0.4,
                    "timing_s/step": 5.0,
                    "val/reward": 0.2 + 0.6 * rate,
                }
            )
            assert sentence is None, sentence
