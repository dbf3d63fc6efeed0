"""PF-PPO: how likely rows are, and that the draw is a function of (seed, step)."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from whet.algos.resample import resample_rows, resampling_weights
from whet.config.schema.algorithm import PFPPOConfig

SCORES_B = torch.tensor([-2.0, 0.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (PFPPOConfig("pow", 2.0), [4.0, 0.0, 1.0, 9.0]),
        (PFPPOConfig("pow", 1.0), [2.0, 0.0, 1.0, 3.0]),
        (PFPPOConfig("max_min"), [1.0, 0.0, 0.0, 1.0]),
        (PFPPOConfig("max_random"), [0.1, 0.1, 0.1, 0.4]),
    ],
)
def test_weights(config, expected):
    assert resampling_weights(SCORES_B, config).tolist() == pytest.approx(expected, abs=1e-6)


def test_equal_scores_of_zero_are_drawn_evenly():
    rows = resample_rows(torch.zeros(1000), PFPPOConfig("pow"), seed=1, step=1)
    assert len(rows) == 1000
    assert 550 < len(set(rows)) < 700  # 1 - 1/e of them


def test_the_draw_is_a_function_of_seed_and_step():
    scores_B = torch.rand(50)
    draw = resample_rows(scores_B, PFPPOConfig(), seed=1, step=7)
    torch.manual_seed(123)
    assert resample_rows(scores_B, PFPPOConfig(), seed=1, step=7) == draw
    assert resample_rows(scores_B, PFPPOConfig(), seed=1, step=8) != draw
    assert resample_rows(scores_B, PFPPOConfig(), seed=2, step=7) != draw


def test_rows_come_as_often_as_their_weights_say_and_in_order():
    scores_B = torch.cat([SCORES_B] * 500)
    rows = resample_rows(scores_B, PFPPOConfig("pow", 2.0), seed=3, step=1)
    assert rows == sorted(rows)
    counts = Counter(row % 4 for row in rows)
    assert counts[1] == 0
    assert counts[3] / len(rows) == pytest.approx(9 / 14, abs=0.05)
    assert counts[0] / len(rows) == pytest.approx(4 / 14, abs=0.05)
