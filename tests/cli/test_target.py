"""Runs, checkpoints and models as arguments: which model they mean, and what is said of anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from whet_process import start

from whet.checkpoint.manifest import MANIFEST, read_manifest, write_manifest
from whet.cli import main
from whet.cli.target import Target, resolve, split_target
from whet.config import load_config
from whet.errors import UserError


@pytest.fixture
def copy(finished_run: Path, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(finished_run, tmp_path / "copy"))


def score(checkpoint: Path, value: float | None) -> None:
    """Give a checkpoint another validation score, or none."""
    found = read_manifest(checkpoint)
    (checkpoint / MANIFEST).unlink()
    write_manifest(checkpoint, found.step, found.serial, found.meta | {"score": value}, found.run)


def test_a_run_stands_for_its_best_checkpoint(copy: Path) -> None:
    score(copy / "global_step_1", 0.75)
    score(copy / "global_step_2", 0.5)
    target = resolve(str(copy))
    assert target.checkpoint == copy / "global_step_1"
    assert (target.step, target.run, target.name) == (1, copy, "copy")
    assert "global_step_1 (the best of 2 by validation), config: " in str(target)
    for step in (1, 2):
        score(copy / f"global_step_{step}", None)
    target = resolve(str(copy))
    assert target.checkpoint == copy / "global_step_2"
    assert "(the last; none was validated)" in str(target)


def test_a_checkpoint_is_itself_under_the_config_of_its_run(finished_run: Path, tmp_path: Path) -> None:
    target = resolve(str(finished_run / "global_step_1"))
    model = finished_run / "global_step_1" / "actor" / "huggingface"
    assert target == Target(str(model), finished_run / "global_step_1", finished_run)
    alone = Path(shutil.copytree(finished_run / "global_step_1", tmp_path / "alone" / "global_step_1"))
    assert resolve(str(alone)).sampling_arguments() == [
        f"worker.actor.model.model_path={alone / 'actor' / 'huggingface'}"
    ]
    assert resolve(str(model)) == Target(str(model))


def test_names_stay_names() -> None:
    assert resolve("whet/quickstart") == Target("whet/quickstart")
    assert resolve("org/model-7b") == Target("org/model-7b")
    assert split_target(["config=run.yaml"]) == (None, ["config=run.yaml"])
    assert split_target(["my.yaml", "data.seed=1"]) == (None, ["my.yaml", "data.seed=1"])


def test_code_of_a_stranger_needs_a_word_on_the_command_line(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    assert "trust_remote_code: false" in text
    (copy / "config.yaml").write_text(text.replace("trust_remote_code: false", "trust_remote_code: true"))
    for arguments in (resolve(str(copy)).sampling_arguments(), resolve(str(copy)).serving_arguments()):
        assert not load_config(arguments).worker.actor.model.trust_remote_code
        assert load_config(
            [*arguments, "worker.actor.model.trust_remote_code=true"]
        ).worker.actor.model.trust_remote_code


def test_what_is_no_model_is_a_sentence(finished_run: Path, tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "empty_run").mkdir()
    (tmp_path / "empty_run" / "config.yaml").write_text("")
    (tmp_path / "runs" / "global_step_3").mkdir(parents=True)
    (elsewhere / "a_file").write_text("")
    (tmp_path / "broken" / "global_step_1").mkdir(parents=True)
    (tmp_path / "broken" / "config.yaml").write_text("")
    (tmp_path / "broken" / "global_step_1" / "manifest.json").write_text("{}")
    (elsewhere / "folder").mkdir()
    for text, sentence in (
        (str(tmp_path / "empty_run"), "is a run without a checkpoint yet"),
        (str(tmp_path / "broken"), "none of the checkpoints in .*broken can be used.*global_step_1 is damaged"),
        (str(tmp_path / "runs" / "global_step_3"), "holds no checkpoint: it has no manifest.json"),
        (str(finished_run.parent), f"holds runs: {finished_run.name}; name one of them"),
        (str(finished_run.parents[1]), f"holds runs: whet/{finished_run.name}; name one of them"),
        (str(finished_run / "samples"), "holds no model: name a run folder"),
        ("a_file", "a_file is a file; name a run folder"),
        ("foldr", "there is no such folder.*did you mean folder"),
        ("folder/nope", "folder/nope: there is no such folder"),
        ("\x1b[31mred", "there is no such folder"),
    ):
        with pytest.raises(UserError, match=sentence) as caught:
            resolve(text)
        assert "\x1b" not in str(caught.value)


def test_adapters_alone_are_no_model(copy: Path) -> None:
    shutil.rmtree(copy / "global_step_2" / "actor" / "huggingface")
    target = resolve(str(copy / "global_step_2"))
    assert target.model is None
    with pytest.raises(UserError, match="holds adapters only; write a whole model first: whet merge"):
        target.serving_arguments()
    assert f"trainer.load_checkpoint_path={copy / 'global_step_2'}" in target.sampling_arguments()


def test_eval_of_a_run_repeats_its_validation(finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From another folder: its paths were written so that they are found from anywhere."""
    metrics = [json.loads(line) for line in (finished_run / "metrics.jsonl").read_text().splitlines()]
    assert main(["eval", str(finished_run / "global_step_2")]) == 0
    out = capsys.readouterr().out
    report = json.loads((finished_run / "eval" / "global_step_2" / "report.json").read_text())
    assert f"checkpoint: {finished_run / 'global_step_2'}" in out
    assert report["datasets"]["val"]["metrics"]["avg@2"]["mean"] == pytest.approx(metrics[-1]["val/avg@2"], abs=1e-6)


def test_eval_with_another_config_takes_the_model_alone(finished_run: Path, elsewhere: Path, capsys) -> None:
    (elsewhere / "other.yaml").write_text(
        f"extends: {finished_run / 'config.yaml'}\ndata: {{max_response_length: 4}}\n"
    )
    assert main(["eval", str(finished_run), "config=other.yaml", "eval.output=out"]) == 0, capsys.readouterr().err
    assert "4 tokens" in (elsewhere / "out" / "report.md").read_text()


def test_generate_from_a_run(finished_run: Path, elsewhere: Path, few_rows: tuple[str, str]) -> None:
    files = few_rows[1].replace("data.val_files", "generate.files")
    assert main(["generate", str(finished_run), files, "generate.output=samples.jsonl"]) == 0
    rows = [json.loads(line) for line in (elsewhere / "samples.jsonl").read_text().splitlines()]
    assert all("Begin with" in row["prompt_text"] for row in rows)  # the run's own template


def test_merge_of_a_run(finished_run: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = resolve(str(finished_run))
    assert main(["merge", str(finished_run), "merged"]) == 0
    assert str(target) in capsys.readouterr().out
    model = target.checkpoint / "actor" / "huggingface" / "model.safetensors"
    assert (elsewhere / "merged" / "model.safetensors").read_bytes() == model.read_bytes()


def test_serve_of_a_run(finished_run: Path, tmp_path: Path) -> None:
    server = start(tmp_path, "serve", str(finished_run), "serve.port=0")
    try:
        assert server.wait_for(lambda: "/v1\n" in server.text()), server.text()
        assert f"serving {finished_run.name} at http://127.0.0.1:" in server.text()
        assert str(resolve(str(finished_run)).checkpoint) in server.text()
    finally:
        server.kill()
