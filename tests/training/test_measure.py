"""Means over samples."""

from __future__ import annotations

import pytest

from whet.training.measure import mean_scores
from whet.types import Prompt, Sample, Segment


def sample(failure: str | None = None, end: str | None = None, **scores: float) -> Sample:
    return Sample(
        Prompt("rows:1", [1], ""), [Segment([2], True, [0.0])], "stop", scores=scores, failure=failure, end=end
    )


def test_a_score_is_averaged_over_the_samples_that_have_it() -> None:
    means = mean_scores([sample(overall=1.0, format=1.0), sample(overall=0.0)], "reward")
    assert means == {"reward/overall": 0.5, "reward/format": 1.0}


@pytest.mark.parametrize("name", ["accuracy", "acc"])
def test_what_failed_or_ended_without_an_accuracy_is_not_right(name: str) -> None:
    right, failed = sample(overall=1.0, **{name: 1.0}), sample(overall=0.0, failure="raised")
    lost, other = sample(overall=0.0, end="max_turns"), sample(overall=0.3)  # the last is of a scorer without accuracy
    assert mean_scores([right, failed], "val")["val/accuracy"] == 0.5
    assert mean_scores([right, lost], "val")["val/accuracy"] == 0.5
    assert mean_scores([right, other], "val")["val/accuracy"] == 1.0
