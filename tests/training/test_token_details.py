"""Rows whose tokens are recorded, and what is recorded of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from whet.config.schema.trainer import TrainerConfig
from whet.training import token_details
from whet.training.experience import Experience
from whet.training.token_details import recorded_rows, token_records
from whet.types import Prompt, Sample

PROMPT = Prompt("train.jsonl:1", [1, 2], "p")


def samples(groups: int = 4, n: int = 3, tokens: int = 5) -> list[Sample]:
    return [
        Sample.written(PROMPT, [7] * tokens, [-1.0] * tokens, "stop", index=i, group=g * n)
        for g in range(groups)
        for i in range(n)
    ]


def test_the_first_groups_whole_or_all_or_none() -> None:
    config = TrainerConfig()
    assert recorded_rows(config, samples()) == list(range(6))
    assert recorded_rows(replace(config, log_token_details=True), samples()) == list(range(12))
    assert recorded_rows(replace(config, log_token_groups=0), samples()) == []
    assert recorded_rows(replace(config, log_samples=False, log_token_details=True), samples()) == []


def test_no_step_records_more_than_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_details, "MOST_TOKENS", 40)
    assert recorded_rows(TrainerConfig(log_token_details=True), samples()) == list(range(6))  # 30 of 60 tokens


def test_a_batch_drawn_anew_records_each_sample_once_under_its_own_row() -> None:
    own = samples(groups=2)
    drawn = [own[4], own[4], own[0], own[5]]
    rows = recorded_rows(TrainerConfig(), drawn)
    assert rows == [0, 3, 2]
    advantages = torch.arange(4.0)[:, None].expand(4, 5)
    experience = Experience(drawn, torch.ones(4, 5), advantages - 1, None, advantages, advantages)
    recorded = torch.zeros(3, 3, 5)
    recorded[0], recorded[2, :2] = 0.5, 1.0
    found = token_records(own, experience, rows, recorded)
    assert [record.row for record in found] == [0, 4, 5]
    assert [record.advantages[0] for record in found] == [2.0, 0.0, 3.0]
    assert found[0].new_log_probs is None  # no pass was made of it
    assert found[1].new_log_probs == [0.5] * 5
