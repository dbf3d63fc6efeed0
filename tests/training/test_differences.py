"""What differs between a config and the one that a checkpoint was made with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.checkpoint.manifest import Checkpoint
from whet.config import load_config
from whet.config.files import anchored
from whet.errors import UserError
from whet.training.differences import changed_keys, check_same_model, more_steps


def checkpoint(folder: Path, *arguments: str, whole: bool = True) -> Checkpoint:
    """A checkpoint of step 3 that was made with these arguments."""
    config = load_config(list(arguments))
    stored = (anchored(config) if whole else config).stored()
    return Checkpoint(folder / "global_step_3", 3, {"config": stored}, serial=1)


@pytest.mark.parametrize("whole", [True, False])
def test_a_relative_path_is_the_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    arguments = ["data.train_files=rows.jsonl", "worker.actor.optim.lr=0.1"]
    made = checkpoint(tmp_path, *arguments, whole=whole)
    assert changed_keys(made, load_config(arguments)) == []
    changed = load_config([arguments[0], "worker.actor.optim.lr=0.2"])
    assert changed_keys(made, changed) == ["worker.actor.optim.lr: 0.1 → 0.2"]


def test_a_model_is_the_same_by_name_by_folder_and_after_it_was_moved(tmp_path: Path) -> None:
    key = "worker.actor.model.model_path"
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    os.symlink(first, tmp_path / "link")
    made = checkpoint(tmp_path, f"{key}={first}")
    check_same_model(made, load_config([f"{key}={first}"]))
    check_same_model(made, load_config([f"{key}={tmp_path / 'link'}"]))
    for other in (str(second), "org/name"):
        with pytest.raises(UserError, match="another model") as refused:
            check_same_model(made, load_config([f"{key}={other}"]))
        assert str(first) in str(refused.value)
        assert other in str(refused.value)
    (tmp_path / "link").unlink()
    first.rmdir()
    check_same_model(made, load_config([f"{key}={second}"]))


def test_the_key_that_goes_on_is_the_one_that_ended_the_run() -> None:
    assert more_steps(load_config(["trainer.max_steps=5"]), 9) == "trainer.max_steps=10 or more"
    assert more_steps(load_config([]), 9) == "trainer.total_epochs=16 or more"
