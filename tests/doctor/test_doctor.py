"""Rules that notice a run that does not learn: when they begin to hold, what they say, and that they stay quiet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from whet.config import load_config
from whet.doctor.doctor import Doctor
from whet.doctor.findings import Finding, Rule
from whet.doctor.rules import rules
from whet.doctor.rules.cut import CutResponses
from whet.doctor.rules.drift import LogProbDrift
from whet.doctor.rules.overfit import FallingValidation
from whet.doctor.rules.ties import Ties


def steps_of(rule: Rule, metrics: Iterable[dict[str, float]]) -> list[int]:
    """Steps at which a rule holds, counted from 1."""
    return [step for step, each in enumerate(metrics, 1) if rule.observe(each) is not None]


def advantages(spread: float) -> dict[str, float]:
    return {"advantage/max": spread, "advantage/min": -spread, "reward/overall": 0.0, "batch/solve_all": 0.0}


def test_ties_hold_after_five_steps_without_an_advantage() -> None:
    assert steps_of(Ties(), [advantages(0.0)] * 4 + [advantages(0.5)] + [advantages(0.0)] * 6) == [10, 11]
    assert steps_of(Ties(3), [advantages(0.0)] * 3) == [3]  # all of a short run
    assert steps_of(Ties(1), [advantages(0.0)]) == []
    assert steps_of(Ties(50), [advantages(0.0)] * 4) == []
    assert steps_of(Ties(), [{"actor/loss": 1.0}] * 9) == []  # supervised learning
    rule = Ties()
    said = [rule.observe(advantages(0.0) | {"batch/solve_all": 1.0}) for _ in range(5)]
    assert said[-1] is not None
    assert "Every prompt is solved" in said[-1]


def test_responses_that_are_nearly_all_cut_off() -> None:
    shares = [1.0, 0.96, 0.9, 0.95, 1.0, 1.0, 0.2]
    assert steps_of(CutResponses(16), [{"response_length/clip_ratio": share} for share in shares]) == [6]
    assert not any(isinstance(rule, CutResponses) for rule in rules(load_config(["worker.rollout.ignore_eos=true"])))
    assert any(isinstance(rule, CutResponses) for rule in rules(load_config([])))


@pytest.mark.parametrize(("gap", "expected"), [(0.03, []), (0.3, [3, 4]), (float("nan"), [3, 4])])
def test_log_probs_that_drift_apart(gap: float, expected: list[int]) -> None:
    assert steps_of(LogProbDrift(), [{"rollout/log_prob_diff_mean": gap}] * 4) == expected


def validated(train: float, val: float) -> list[dict[str, float]]:
    return [{"reward/overall": train}, {"reward/overall": train, "val/reward": val}]


def test_validation_that_falls_while_training_rises() -> None:
    falls = [each for i in range(4) for each in validated(0.2 + 0.1 * i, 0.8 - 0.1 * i)]
    assert steps_of(FallingValidation(), falls) == [8]
    noise = [each for i in range(4) for each in validated(0.2 + 0.1 * i, 0.8 - 0.001 * i)]
    assert steps_of(FallingValidation(), noise) == []
    both_fall = [each for i in range(6) for each in validated(0.9 - 0.1 * i, 0.8 - 0.1 * i)]
    assert steps_of(FallingValidation(), both_fall) == []


def test_a_finding_is_said_once_and_again_after_it_went_away(tmp_path: Path) -> None:
    said: list[str] = []
    doctor = Doctor(tmp_path, said.append, rules(load_config([])))
    for step, spread in enumerate([0.0] * 7 + [0.5] + [0.0] * 5, 1):
        doctor.observe(step, advantages(spread))
    assert [each.partition(":")[0] for each in said] == ["step 5", "step 13"]
    written: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "doctor.jsonl").read_text().splitlines()]
    assert [(each["rule"], each["step"]) for each in written] == [("ties", 5), ("ties", 13)]
    assert said[0] == f"step 5: {written[0]['sentence']}"


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    Doctor(tmp_path / "gone", said.append).report(Finding("ties", 1, "seen"))
    assert said[0] == "step 1: seen"
    assert "doctor.jsonl cannot be written" in said[1]
