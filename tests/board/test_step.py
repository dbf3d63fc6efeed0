"""The view of a step: its timeline, read from a file that grows and may be damaged, and its histograms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.board.timeline import TimelineFiles


def line(step: int, seconds: float = 2.0) -> str:
    stages = [["rollout", 0.0, 1.0], ["update", 1.0, seconds]]
    record = {"step": step, "began": 1.0, "seconds": seconds, "stages": stages, "groups": [[8, -0.5, 0.5, 0.9]]}
    return json.dumps(record | {"all_groups": 1}) + "\n"


def test_a_file_that_grows_is_followed_and_the_last_line_of_a_step_counts(tmp_path: Path) -> None:
    files, file = TimelineFiles(), tmp_path / "timeline.jsonl"
    assert files.read(tmp_path, 1) is None
    assert files.steps(tmp_path) == []
    file.write_text(line(1) + line(2) + '{"step": 3, "sec')
    assert files.steps(tmp_path) == [1, 2]
    with file.open("a") as content:
        content.write("\n" + line(2, 5.0) + line(4))
    assert files.steps(tmp_path) == [1, 2, 3, 4]
    found = files.read(tmp_path, 2)
    assert found is not None
    assert found["seconds"] == 5.0
    assert found["stages"][0] == ["rollout", 0.0, 1.0]
    assert found["groups"] == [[8, -0.5, 0.5, 0.9]]
    assert files.read(tmp_path, 3) is None  # torn
    file.write_text(line(7))
    assert files.steps(tmp_path) == [7]


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    record = {
        "step": 1,
        "stages": [["<b>x</b>", "a", 1.0], ["ok", 0.0, 1.0], 5],
        "groups": [[1, 2], None],
        "seconds": "x",
    }
    (tmp_path / "timeline.jsonl").write_text(json.dumps(record) + "\n")
    found = TimelineFiles().read(tmp_path, 1)
    assert found is not None
    assert found["stages"] == [["ok", 0.0, 1.0]]
    assert found["groups"] == []
    assert found["seconds"] is None


def test_a_step_has_bins_that_filter(run: Path, ask: Callable[..., Any]) -> None:
    (run / "timeline.jsonl").write_text(line(3))
    found = ask("step", step=3)
    assert found["steps"] == [1, 3]
    assert found["timeline"]["seconds"] == 2.0
    assert found["metrics"]["timing_s/step"] == 2.0
    assert "<b>odd</b>" not in found["metrics"]  # it is not finite
    rewards = found["histograms"]["reward"]
    assert sum(each["count"] for each in rewards) == 40
    for each in rewards:
        query = {"step": 3, "min_reward": each["low"], "max_reward": each["high"]}
        assert ask("samples", **query)["total"] == each["count"]
    lengths = found["histograms"]["length"]
    assert lengths == [{"low": 6.0, "high": 6.0, "count": 40}]
    assert ask("step")["step"] == 3
    assert ask("step", step=2)["histograms"] == {}
    assert ask("step", step=2)["timeline"] is None


def test_samples_of_a_policy_version(ask: Callable[..., Any]) -> None:
    assert ask("samples", step=3, version=0)["total"] == 40
    assert ask("samples", step=3, version=7)["total"] == 0
