"""The soft penalty of overlong responses."""

from __future__ import annotations

import pytest

from whet.config.schema.reward import OverlongBufferConfig
from whet.rewards.overlong import penalise_overlong
from whet.types import Prompt, Sample


def of_length(length: int) -> Sample:
    sample = Sample.written(Prompt("row", [1], "?"), [5] * length, [-1.0] * length, "stop")
    sample.scores = {"overall": 1.0, "accuracy": 1.0}
    return sample


def test_the_penalty_grows_in_the_last_tokens():
    samples = [of_length(length) for length in (1, 60, 61, 80, 100)]
    penalise_overlong(samples, OverlongBufferConfig(enable=True, len=40, penalty_factor=0.5), max_tokens=100)
    penalties = [0.0, 0.0, -0.0125, -0.25, -0.5]
    assert [s.scores["overlong_reward"] for s in samples] == pytest.approx(penalties)
    assert [s.reward for s in samples] == pytest.approx([1 + penalty for penalty in penalties])
    assert [s.scores["overlong"] for s in samples] == [0, 0, 1, 1, 1]
    assert all(s.scores["accuracy"] == 1.0 for s in samples)


def test_nothing_happens_unless_enabled():
    sample = of_length(100)
    penalise_overlong([sample], OverlongBufferConfig(len=40), max_tokens=100)
    assert sample.scores == {"overall": 1.0, "accuracy": 1.0}
