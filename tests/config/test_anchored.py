"""The config of a run folder can be used from any folder: every path that exists is absolute in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.config import check_files, load_config
from whet.config.files import anchored


def test_paths_are_absolute_and_other_values_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, here = tmp_path / "project", tmp_path / "here"
    (project / "model").mkdir(parents=True)
    (project / "model" / "config.json").write_text("{}")
    here.mkdir()
    for name in ("reward.py", "mine.py", "prompt.jinja", "engine.py", "logger.py", "a.jsonl"):
        (project / name).write_text("")
    (here / "b.jsonl").write_text("")
    (project / "run.yaml").write_text(
        "data: {format_prompt: prompt.jinja}\nworker: {actor: {model: {model_path: model}}}\n"
    )
    monkeypatch.chdir(here)
    monkeypatch.setenv("MINE", "mine.py")
    config = load_config(
        [
            f"config={project / 'run.yaml'}",
            "data.train_files=a.jsonl,b.jsonl,whet/quickstart@train,org/data@train",
            "data.val_files=a.jsonl@test",
            "data.override_chat_template='{{ messages }}'",
            "worker.reward.reward_function=reward.py:score",
            "algorithm.extensions=[mine.py]",
            "worker.rollout.name=engine.py:SPEC",
            "trainer.logger=[console,logger.py:Own]",
            "trainer.load_checkpoint_path=${oc.env:MINE}",
        ]
    )
    whole = anchored(config)
    assert whole.data.train_files == f"{project}/a.jsonl,{here}/b.jsonl,whet/quickstart@train,org/data@train"
    assert whole.data.val_files == f"{project}/a.jsonl@test"
    assert whole.data.format_prompt == f"{project}/prompt.jinja"
    assert whole.data.override_chat_template == "{{ messages }}"
    assert whole.worker.actor.model.model_path == f"{project}/model"
    assert whole.worker.reward.reward_function == f"{project}/reward.py:score"
    assert whole.algorithm.extensions == [f"{project}/mine.py"]
    assert whole.worker.rollout.name == f"{project}/engine.py:SPEC"
    assert whole.trainer.logger == ["console", f"{project}/logger.py:Own"]
    assert "${oc.env:MINE}" in whole.to_yaml()  # what the environment says stays there
    assert config.data.format_prompt == "prompt.jinja"  # the config itself is as it was


def test_what_was_written_is_read_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).parents[2] / "examples"
    config = load_config([f"config={examples / 'quickstart.yaml'}"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(anchored(config).to_yaml())
    monkeypatch.chdir(tmp_path)
    again = load_config(["config=run/config.yaml"])
    check_files(again)
    assert again.worker.reward.reward_function == f"{examples}/reward_function/quickstart.py:compute_score"
    assert anchored(again) == again


def test_the_name_of_an_adapter_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gymnasium").mkdir()
    monkeypatch.chdir(tmp_path)
    config = load_config(["data.train_files=gymnasium:X-v1@3", "worker.rollout.env=gymnasium:X-v1"])
    assert anchored(config).worker.rollout.env == "gymnasium:X-v1"
    assert anchored(config).data.train_files == "gymnasium:X-v1@3"
