"""Progress of a whole run: time left, and the curve of its reward."""

from __future__ import annotations

import time

import pytest

from whet.tracking.lines import step_fields, validation_fields
from whet.tracking.progress import RunProgress, duration, sparkline


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 8, ""),
        ([1.0], 8, ""),
        ([0.0, 1.0], 8, "▁█"),
        ([0.5, 0.5, 0.5], 8, "▁▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 1, 1], 2, "▁█"),
    ],
)
def test_sparkline(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width) == expected


def test_the_time_left_is_of_steps_logged_here(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = RunProgress()
    assert run.left(50) is None
    run.log(21, {"timing_s/step": 2.0})  # resumed at step 20
    assert run.left(50) == 29 * 2.0
    now[0] += 9.0  # three steps, and a validation
    run.log(24, {"timing_s/step": 2.0})
    assert run.left(50) == 26 * 3.0
    assert run.left(24) is None


def test_a_long_run_keeps_few_points_and_its_shape() -> None:
    run = RunProgress()
    for step in range(1, 10_001):
        run.log(step, {"reward/overall": float(step)})
    assert len(run._values) < 1024
    assert run.sparkline(8) == "▁▂▃▄▅▆▇█"


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.21, "4.2s"), (200, "3m 20s"), (7500, "2h 5m"), (3 * 86400 + 4 * 3600, "3d 4h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_columns_that_say_nothing_are_left_out() -> None:
    words = [field.text.plain for field in step_fields(1, 2, {"reward/overall": 0.5, "actor/ppo_kl": 0.0})]
    assert not any("kl" in word for word in words)
    metrics = {"val/accuracy": 0.5, "val/avg@4": 0.5, "val/pass@1": 0.5, "val/pass@4": 0.75}
    assert [field.text.plain.split()[0] for field in validation_fields(1, 2, metrics)] == ["val", "acc", "pass@4"]
    metrics = {"val/reward": 0.2, "val/avg@4": 0.5}  # no accuracy: they are news
    assert [field.text.plain.split()[0] for field in validation_fields(1, 2, metrics)] == ["val", "reward", "avg@4"]
    metrics = {"val/reward": 0.5, "val/failed": 3.0}
    assert [field.text.plain for field in validation_fields(1, 2, metrics)][-1] == "rewards failed 3"
