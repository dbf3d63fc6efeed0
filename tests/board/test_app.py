"""What the page can ask for: runs, curves, findings, samples, groups, tokens, configs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board.conftest import HOSTILE

from whet.assets import builtin
from whet.board.runs import Runs, run_id
from whet.errors import UserError
from whet.tracking.run_folder import append_metrics

Ask = Callable[..., Any]


def test_runs_with_state_curve_and_findings(ask: Ask, run: Path) -> None:
    (row,) = ask("runs")
    assert (row["id"], row["name"], row["status"], row["step"]) == (run_id(run), "hostile", "finished", 14)
    assert row["findings"] == 1
    assert row["latest"]["reward/overall"] == 0.7
    assert row["spark"] == {"metric": "reward/overall", "points": [[i, i / 20] for i in range(1, 15)]}


def test_a_run_that_begins_and_grows_while_the_board_is_up(ask: Ask, run: Path) -> None:
    assert len(ask("runs")) == 1
    (run.parent / "deep" / "er").mkdir(parents=True)
    append_metrics(run.parent / "deep" / "er" / "metrics.jsonl", 1, {"a": 1.0})
    append_metrics(run / "metrics.jsonl", 15, {"reward/overall": 0.9})
    rows = {row["name"]: row for row in ask("runs")}
    assert set(rows) == {"hostile", "deep/er"}
    assert rows["hostile"]["step"] == 15
    assert rows["deep/er"]["status"] == "stopped"


def test_curves_have_every_axis_and_gaps_for_what_is_not_finite(ask: Ask) -> None:
    found = ask("metrics", name=["reward/overall", "<b>odd</b>", "missing"])
    assert found["x"]["step"] == list(range(1, 15))
    assert found["x"]["seconds"][-1] == 28.0
    assert found["x"]["tokens"][-1] == 1400
    assert found["y"]["reward/overall"][1] == 0.1
    assert found["y"]["<b>odd</b>"] == found["y"]["missing"] == [None] * 14
    assert "actor/grad_norm" in found["names"]


def test_findings_with_evidence(ask: Ask, run: Path) -> None:
    (run / "doctor.jsonl").write_text(json.dumps({"rule": "answers", "step": 0, "sentence": "seen"}) + "\n{torn")
    first, second = ask("findings")
    assert (first["rule"], first["step"]) == ("answers", 0)
    assert (second["rule"], second["step"], second["until"]) == ("gradients", 11, 14)
    assert second["evidence"]["actor/grad_norm"][-1] == [11, 80.0]


def test_groups_side_by_side(ask: Ask) -> None:
    assert ask("steps")["steps"] == [1, 3]
    (group,) = ask("groups", step=1)["groups"]
    assert [each["reward"] for each in group] == [0, 1, 2, 3, 4]
    assert group[0]["response"] == HOSTILE["markup"]  # as it is: the page shows text as text
    assert len(group[3]["response"]) == 1200
    assert group[3]["response_chars"] == 1_000_000
    page = ask("groups", step=3, offset=38, limit=5)
    assert (page["total"], len(page["groups"])) == (40, 2)
    assert "no train samples of step 2" in ask("groups", 400, step=2)["error"]


def test_a_sample_has_its_tokens_in_segments(ask: Ask) -> None:
    found = ask("sample", step=1, row=3)
    assert len(found["response"]) == 400_000
    assert found["tokens"]["by_model"] == [True, True, True, False, False, True]
    assert found["tokens"]["log_probs"] == pytest.approx([-0.1, -2, -5, None, None, -1])
    assert found["tokens"]["texts"] is None  # the run has no tokenizer
    assert ask("sample", step=1, row=0)["notes"] == {"judge": "<b>good</b>"}
    assert ask("sample", step=3, row=0)["tokens"] is None


def test_texts_of_tokens_come_from_the_newest_checkpoint(ask: Ask, run: Path) -> None:
    folder = run / "global_step_14" / "actor" / "huggingface"
    folder.mkdir(parents=True)
    shutil.copy(builtin("whet/quickstart", say=print) / "model" / "tokenizer.json", folder)
    from tokenizers import Tokenizer

    texts = ask("sample", step=1, row=0)["tokens"]["texts"]
    whole = Tokenizer.from_file(str(folder / "tokenizer.json")).decode([1, 2, 3, 4, 5, 6], skip_special_tokens=False)
    assert len(texts) == 6
    assert "".join(texts) == whole
    (folder / "tokenizer.json").write_text("{damaged")
    assert ask("sample", step=1, row=0)["tokens"]["texts"] is None


def test_config_beside_defaults_and_another_run(ask: Ask, run: Path) -> None:
    rows = {row["key"]: row for row in ask("config")}
    assert rows["data.max_response_length"]["changed"]
    assert rows["old.key"]["default"] is None
    assert "verysecret" not in json.dumps(list(rows.values()))
    other = run.parent / "other"
    other.mkdir()
    (other / "run.log").touch()  # a run that has begun
    (other / "config.yaml").write_text("worker: {rollout: {n: 4}}\ndata: {max_response_length: 77}\n")
    rows = {row["key"]: row for row in ask("config", other=run_id(other))}
    assert (rows["worker.rollout.n"]["other"], rows["worker.rollout.n"]["differs"]) == ("4", True)
    assert not rows["data.max_response_length"]["differs"]
    (other / "config.yaml").write_text("a: [")
    assert "config.yaml" in ask("config", 400, other=run_id(other))["error"]
    assert len(ask("runs")) == 2  # the table still stands


def test_folders_are_checked_and_links_are_not_followed(tmp_path: Path, run: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        Runs([tmp_path / "gone"])
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "run").symlink_to(run)
    assert Runs([tmp_path / "links"]).find() == {}
    assert list(Runs([run, run.parent]).find().values()) == [run]
