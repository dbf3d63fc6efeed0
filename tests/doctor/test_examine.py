"""`whet doctor` on run folders: findings with steps, evidence and remedy, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.cli import main
from whet.tracking.run_folder import append_metrics


def faulty_run(folder: Path) -> Path:
    """Write a run whose gradients explode at step 12, and whose doctor noticed something about its rows."""
    folder.mkdir(parents=True)
    for step in range(1, 15):
        norm = 0.5 if step < 10 else float("inf") if step == 14 else 80.0
        append_metrics(folder / "metrics.jsonl", step, {"actor/grad_norm": norm, "reward/overall": 0.5})
    (folder / "doctor.jsonl").write_text(
        json.dumps({"rule": "answers", "step": 0, "sentence": "answers do not \x1b[31mscore"}) + '\n{"torn'
    )
    return folder


def test_findings_with_evidence_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(faulty_run(tmp_path / "run"))]) == 0
    said = capsys.readouterr().out
    assert "2 findings in 14 steps" in said
    assert "answers, before the first step" in said
    assert "\x1b" not in said
    assert "gradients, steps 12 to 14" in said
    assert "actor/grad_norm  8: 0.5  9: 0.5  10: 80  11: 80  12: 80" in said
    assert "Lower worker.actor.optim.lr" in said.replace("\n    ", " ")


def test_findings_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty_run(tmp_path / "runs" / "a")
    faulty_run(tmp_path / "runs" / "b")
    assert main(["doctor", str(tmp_path / "runs"), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(Path(each["run"]).name, each["rule"]) for each in records] == [
        (name, rule) for name in "ab" for rule in ("answers", "gradients")
    ]
    assert records[1]["step"] == 12
    assert records[1]["until"] == 14


def test_a_run_without_findings_and_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_metrics(tmp_path / "metrics.jsonl", 1, {"reward/overall": 0.5})
    assert main(["doctor", str(tmp_path)]) == 0
    assert "nothing found in 1 step\n" in capsys.readouterr().out
    for arguments, part in (([], "takes run folders"), (["--x"], "no option"), ([str(tmp_path / "no")], "no such")):
        assert main(["doctor", *arguments]) == 2
        assert part in capsys.readouterr().err
