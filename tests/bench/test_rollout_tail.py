"""The long-tail benchmark: its lengths, and the whole of it at a tiny size on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_end_tokens_are_as_many_as_the_mean_length_asks_for() -> None:
    from rollout_tail import WORKLOADS, ends_of

    assert len(ends_of(151936, 820)) == round(151936 / 820)
    assert len(ends_of(8, 100)) == 1
    assert set(WORKLOADS) >= {"long-tail-1.7b", "rollout-7b", "rollout-8b", "moe-30b-a3b", "tiny", "tiny-moe"}


def test_values_over_time_are_those_of_the_last_moment_before() -> None:
    from rollout_tail import _over_time

    assert _over_time([(0.5, 4), (1.0, 8), (3.0, 2)], 4.0, points=4) == [4, 8, 8, 2]


def test_the_tiny_workload_runs_behind_a_short_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rollout_tail

    out = tmp_path / "result.json"
    arguments = ["rollout_tail.py", "tiny", "--rounds", "2", "--first-request", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", arguments)
    rollout_tail.main()
    result = json.loads(out.read_text())
    assert result["first_request_tokens"] == 2
    assert len(result["rounds"]) == 2
    for each in result["rounds"]:
        assert each["tokens"] >= 4 * 2
        assert each["longest"] <= 48
        assert max(each["slots"]) <= 4
        assert each["tokens_per_s"] == pytest.approx(each["tokens"] / each["seconds"])
