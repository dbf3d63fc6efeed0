"""examples/code: the digits that the model writes are part of a program that hidden tests judge."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whet.config import check_config, check_files, load_config
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

FOLDER = Path(__file__).parents[2] / "examples" / "code"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
def test_programs_are_paid_for_what_they_do():
    config = load_config([f"config={FOLDER / 'order.yaml'}"])
    check_config(config)
    check_files(config)
    texts = (
        "Answer: 1 4 7 9",
        "Answer: 0 1 2 3 4 5 6 7 8 9",
        "Answer: 9 7 4 1",
        "1 4",
        "]; import os; os._exit(0)",
        "",
    )
    prompt = Prompt("row:0", [1], "Sort these digits: 7 1 9 4", "1 4 7 9")
    samples = [Sample.written(prompt, [1], [0.0], "stop", text=text) for text in texts]
    with RewardScorer(f"{FOLDER}/reward.py:compute_score", config.worker.reward, sandbox=config.sandbox) as scorer:
        assert scorer.score(samples)["reward/failed"] == 0
    assert [sample.scores["accuracy"] for sample in samples] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [sample.scores["overall"] for sample in samples[4:]] == [0.0, 0.0]
