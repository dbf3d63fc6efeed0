"""The benchmark of VPPO: how it reads curves and what its tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_samples_to_an_accuracy_lie_between_validations():
    from vppo import Run

    run = Run("grpo", 1, [(0, 0.2), (100, 0.4), (200, 0.3), (300, 0.8)], 1.0, 0.0)
    assert run.samples_to(0.3) == pytest.approx(50)
    assert run.samples_to(0.55) == pytest.approx(250)
    assert run.samples_to(0.1) == 0
    assert run.samples_to(0.9) is None


def test_tables_compare_the_means_over_seeds_and_say_who_never_got_there():
    from vppo import Run, tables

    slow = [Run("grpo", seed, [(0, 0.2), (100, 0.4), (200, 0.6)], 1.0, 0.0) for seed in (1, 2)]
    fast = [
        Run("vppo", 1, [(0, 0.2), (100, 0.6), (200, 0.7)], 1.0, 0.2),
        Run("vppo", 2, [(0, 0.2), (100, 0.4), (200, 0.6)], 1.0, 0.2),
    ]
    lines = tables([*slow, *fast]).splitlines()
    (own,) = (line for line in lines if "last accuracy" in line)
    assert own.endswith("| 200 (200 to 200) | 150 (100 to 200) | 0.75 |")
    (far,) = (line for line in lines if line.startswith("| 70%"))
    assert "not reached" in far
    assert "1 of 2 seeds" in far
