"""`trainer.stages`: one run with settings that change, judged before it starts and resumed to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import SMALL, outcome, run_folder, settled, start, train

from whet.config import check_config, load_config, read_stages
from whet.errors import UserError

REQUIRED = [
    "worker.actor.model.model_path=org/model",
    "worker.reward.reward_function=reward.py:main",
    "data.train_files=train.jsonl",
    "data.val_files=val.jsonl",
    "data.rollout_batch_size=8",
    "worker.actor.global_batch_size=8",
    "worker.rollout.n=4",
]
THREE = (
    "trainer.stages=["
    "{steps: 2, overrides: {data.max_response_length: 10}}, "
    "{steps: 2, overrides: {data.max_response_length: 12, worker.rollout.n: 6, data.rollout_batch_size: 6, "
    "worker.actor.global_batch_size: 3}}, "
    "{steps: 2, overrides: {worker.actor.optim.lr: 1e-4, worker.rollout.temperature: 0.8}}]"
)


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [line for line in settled(run_folder(folder) / "metrics.jsonl") if line["step"] > 0]


def test_a_run_moves_through_its_stages(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, THREE, "trainer.max_steps=null")
    assert code == 0, text
    steps = steps_of(tmp_path)
    assert [line["train/stage"] for line in steps] == [1, 1, 2, 2, 3, 3]
    assert [line["batch/groups"] for line in steps] == [4, 4, 6, 6, 4, 4]
    assert [line["actor/lr"] for line in steps] == [1e-3] * 4 + [1e-4] * 2
    for line, (most, samples) in zip(steps, [(10, 16)] * 2 + [(12, 36)] * 2 + [(16, 16)] * 2):
        rows = pq.read_table(run_folder(tmp_path) / "samples" / f"train_{line['step']:06d}.parquet").to_pylist()
        assert len(rows) == samples
        assert max(row["length"] for row in rows) <= most
        assert line["rollout/log_prob_diff_max"] < 1e-4
    for stage, what in enumerate(["data.max_response_length=10", "data.max_response_length=12", "lr=0.0001"], 1):
        assert f"stage {stage} of 3 begins: " in text
        assert what in text
    assert "finished after 6 of 6 steps" in text
    assert "val/accuracy" in steps[-1]


def test_max_steps_cuts_stages_short(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, THREE, "trainer.max_steps=3")
    assert code == 0, text
    assert [line["train/stage"] for line in steps_of(tmp_path)] == [1, 1, 2]


def test_a_killed_run_goes_on_in_its_stage(tmp_path, few_rows):
    more = ("trainer.save_freq=1", "trainer.val_freq=-1", "trainer.val_before_train=false", THREE)
    code, text = train(tmp_path / "alone", *few_rows, *more)
    assert code == 0, text
    alone, killed = run_folder(tmp_path / "alone"), run_folder(tmp_path / "killed")
    for step in (2, 3, 4):  # at a boundary, inside a stage, at the next boundary
        process = start(tmp_path / "killed", "train", *SMALL, *few_rows, *more)
        assert process.wait_for(lambda step=step: (killed / f"global_step_{step}").exists()), process.text()
        process.kill()
    code, text = train(tmp_path / "killed", *few_rows, *more)
    assert code == 0, text
    assert outcome(killed, 6) == outcome(alone, 6)
    assert "warning" not in text


def test_a_metric_ends_a_stage_and_the_run(tmp_path, few_rows):
    """The second stage ends at once, the last one when its metric has held twice; the run then validates and saves."""
    stages = (
        "trainer.stages=[{steps: 1}, {until: {metric: response_length/mean, above: 0}}, "
        "{until: {metric: reward/overall, below: 100, patience: 2}, overrides: {worker.rollout.n: 2}}]"
    )
    more = (stages, "trainer.val_freq=50", "trainer.save_freq=-1", "trainer.max_steps=40")
    code, text = train(tmp_path, *few_rows, *more)
    assert code == 0, text
    steps = steps_of(tmp_path)
    assert [line["train/stage"] for line in steps] == [1, 2, 3, 3]
    assert "val/accuracy" in steps[-1]
    assert "stage 2 of 3 ended with response_length/mean=" in text
    assert "finished after 4 of 4 steps" in text
    assert (run_folder(tmp_path) / "global_step_4").is_dir()
    code, text = train(tmp_path, *few_rows, *more)  # the same command has nothing left to do
    assert code == 0, text
    assert len(steps_of(tmp_path)) == 4


def test_a_metric_that_is_not_there_is_named(tmp_path, few_rows):
    stages = "trainer.stages=[{until: {metric: reward/acuracy, above: 0.9}}]"
    code, text = train(tmp_path, *few_rows, stages, "trainer.max_steps=2", "trainer.val_freq=-1")
    assert code == 0, text
    assert "trainer.stages[0]: this step has no metric reward/acuracy; did you mean reward/accuracy?" in text


def problems(stages: str, *more: str) -> str:
    with pytest.raises(UserError) as error:
        check_config(load_config([*REQUIRED, *more, f"trainer.stages={stages}"]))
    return str(error.value)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[{overrides: {}}]", "trainer.stages[0]: says neither steps nor until"),
        ("[{steps: 0}]", "trainer.stages[0]: steps=0: must be at least 1"),
        ("[{step: 3}]", "trainer.stages[0]: step is no part of a stage; did you mean steps?"),
        ("[{steps: 1}, {until: 3}]", "trainer.stages[1]: until=3: expected a mapping"),
        ("[{until: {above: 1}}]", "trainer.stages[0]: until: name a metric"),
        ("[{until: {metric: a/b}}]", "trainer.stages[0]: until: set either above or below"),
        ("[{until: {metric: a/b, above: 1, below: 2}}]", "until: set either above or below"),
        ("[{until: {metric: a/b, above: x}}]", "until.above=x: expected a number"),
        ("[{steps: 1, overrides: 3}]", "trainer.stages[0]: overrides: expected keys with their values"),
        (
            "[{steps: 1, overrides: {data.max_respons_length: 3}}]",
            "trainer.stages[0]: unknown key data.max_respons_length; did you mean data.max_response_length?",
        ),
        (
            "[{steps: 1, overrides: {data.max_response_length: long}}]",
            "trainer.stages[0]: data.max_response_length=long: expected an integer",
        ),
        (
            "[{steps: 1, overrides: {worker.actor.model.model_path: other}}]",
            "trainer.stages[0]: worker.actor.model.model_path=other: cannot change during a run",
        ),
        (
            "[{steps: 1}, {steps: 1, overrides: {data.rollout_batch_size: 12}}]",
            "trainer.stages[1]: worker.actor.global_batch_size=8 does not divide data.rollout_batch_size=12",
        ),
        ("[{steps: 1, overrides: {worker.rollout.n: 1}}]", "trainer.stages[0]: worker.rollout.n=1"),
        ("3", "trainer.stages=3: expected a list of mappings"),
    ],
)
def test_mistakes_are_found_before_the_run(stages, message):
    assert message in problems(stages)


def test_the_overlong_buffer_must_fit_every_stage():
    buffer = ("worker.reward.overlong_buffer.enable=true", "worker.reward.overlong_buffer.len=100")
    found = problems("[{steps: 1}, {steps: 1, overrides: {data.max_response_length: 50}}]", *buffer)
    assert found.startswith("trainer.stages[1]: worker.reward.overlong_buffer.len=100")


def test_overrides_may_be_nested_and_may_have_verls_names(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "trainer:\n  stages:\n"
        "    - steps: 3\n      overrides: {data: {max_response_length: 64}, actor_rollout_ref.rollout.n: 16}\n"
        "    - until: {metric: val/accuracy, above: 0.5, patience: 2}\n"
    )
    config = load_config([f"config={file}", *REQUIRED])
    first, second = read_stages(config)
    assert (first.config.data.max_response_length, first.config.worker.rollout.n) == (64, 16)
    assert (second.config.data.max_response_length, second.config.worker.rollout.n) == (512, 4)
    assert (first.steps, second.steps, second.until.patience) == (3, None, 2)
    assert config.data.max_response_length == 512
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load_config([f"config={tmp_path / 'again.yaml'}"]) == config


def test_a_stage_longer_than_the_models_positions_is_refused(tmp_path, few_rows):
    stages = "trainer.stages=[{steps: 1}, {steps: 1, overrides: {data.max_response_length: 100000}}]"
    code, text = train(tmp_path, *few_rows, stages)
    assert code == 2
    assert "positions end at" in text


def test_a_stage_with_more_prompts_than_rows_is_refused(tmp_path, few_rows):
    stages = "trainer.stages=[{steps: 1}, {steps: 1, overrides: {data.rollout_batch_size: 12}}]"
    code, text = train(tmp_path, *few_rows, stages)
    assert code == 2
    assert "data.rollout_batch_size=12 is more than the 10 rows" in text
