"""The config of a job: every problem in one message, and where it starts from without config=."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.cli import main
from whet.config import Config, load_config, summary_lines
from whet.config.examples import examples_folder
from whet.config.jobs import JOBS, load_job
from whet.config.loading.load import TASK_KEYS
from whet.config.problems import MOST_SHOWN, ConfigError
from whet.errors import UserError

QUICKSTART = examples_folder() / "quickstart.yaml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(job: str, *argv: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as refused:
        load_job(job, list(argv), examples_folder())
    assert isinstance(refused.value, ConfigError)
    return refused.value.sentences


def test_unknown_keys_wrong_values_and_checks_come_together() -> None:
    found = problems("train", "a.b=1", "c.d=x", "trainer.n_gpus_per_node=x", "worker.rollout.n=1", "data.seed=-1")
    assert found[:4] == (
        "unknown key a.b; `whet config` lists every key",
        "unknown key c.d; `whet config` lists every key",
        "data.seed=-1: must be at least 0 and at most 9223372036854775807",
        "trainer.n_gpus_per_node=x: expected an integer",
    )
    assert [each for each in found[4:] if "worker.rollout.n=1: adv_estimator=grpo compares" in each]


def test_errors_of_every_layer_in_their_order(here: Path) -> None:
    (here / "base.yaml").write_text("data: {seeed: 3, shuffle: 7}\n")
    (here / "top.yaml").write_text("extends: base.yaml\ntrainer:\n  val_freq:\n  max_step: 3\n")
    found = problems("train", "top.yaml", "foo", "trainer.save_freq=often")
    assert [each.partition(" (")[0].partition(";")[0] for each in found[:6]] == [
        "unknown key data.seeed",
        "unknown key trainer.max_step",
        "trainer.val_freq",
        "foo: expected key=value",
        "data.shuffle=7",
        "trainer.save_freq=often: expected an integer",
    ]
    assert found == problems("train", "top.yaml", "foo", "trainer.save_freq=often")


def test_a_base_that_is_missing_does_not_hide_the_file_that_extends_it(here: Path) -> None:
    (here / "top.yaml").write_text("extends: none.yaml\ndata: {sed: 3}\n")
    first, second = problems("train", "top.yaml")
    assert "none.yaml, but there is no such file" in first
    assert "unknown key data.sed (top.yaml, line 2)" in second  # and no checks, which need the whole config


def test_checks_do_not_speak_of_keys_that_could_not_be_read() -> None:
    assert problems("train", "worker.rollout.n=four") == ("worker.rollout.n=four: expected an integer",)
    assert problems("train", "worker.rollout.m=1") == ("unknown key worker.rollout.m; did you mean worker.rollout.n?",)
    assert len(problems("train", "algorithm.rollout_correction=nothing", "worker.actor.clip_ratio_low=2")) == 2


def test_a_section_with_one_value_hides_its_keys(here: Path) -> None:
    (here / "run.yaml").write_text("data: 3\nworker: {actor: {optim: 1}}\n")
    for found in (problems("train", "run.yaml"), problems("train", "data=", "worker=null")):
        assert "is a section" in found[0]
        assert "is a section" in found[1]
        assert not any("data.train_files is not set" in each for each in found)


def test_a_misspelt_key_hides_nothing_that_is_given_as_well() -> None:
    assert len(problems("train", "worker.rollout.m=4", "worker.rollout.n=1")) == 2


def test_files_that_are_missing_are_part_of_the_list() -> None:
    found = problems("train", f"config={QUICKSTART}", "data.train_files=none.jsonl", "data.sed=1")
    assert len(found) == 2
    assert "data.train_files=none.jsonl: there is no such data file" in found[1]


def test_long_lists_end_with_a_count() -> None:
    with pytest.raises(UserError) as refused:
        load_config([f"key{i}=1" for i in range(MOST_SHOWN + 7)])
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{MOST_SHOWN + 7} problems:"
    assert lines[1].startswith("  1. unknown key key0")
    assert lines[-1] == "  and 7 more"
    assert len(lines) == MOST_SHOWN + 2


def test_one_problem_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "data.sed=1"]) == 2
    assert capsys.readouterr().err == "whet: unknown key data.sed; did you mean data.seed?\n"


@pytest.mark.parametrize("job", sorted(JOBS))
def test_every_job_collects(job: str) -> None:
    found = problems(job, "x.y=1", "data.seed=one")
    assert found[0].startswith("unknown key x.y")
    assert "data.seed=one: expected an integer" in found


def test_more_devices_than_a_machine_has_are_refused_by_the_config() -> None:
    (found,) = problems("train", "trainer.n_gpus_per_node=1024")
    assert "trainer.n_gpus_per_node=1024: devices of one machine" in found


# ── where a config starts ──


def test_without_a_task_of_its_own_a_run_is_the_quickstart() -> None:
    config = load_job("train", ["trainer.max_steps=3", "data.max_response_length=32"], examples_folder())
    assert config.worker.actor.model.model_path == "whet/quickstart"
    assert config.worker.actor.optim.lr != Config().worker.actor.optim.lr
    assert config.origin == f"built-in quickstart ({QUICKSTART})"
    without = load_job("train", ["data.val_files=''", "trainer.val_freq=-1"], examples_folder())
    assert (without.origin, without.data.val_files) == (config.origin, "")
    assert summary_lines(config, "train")[0].startswith("config     built-in quickstart (")


@pytest.mark.parametrize("key", TASK_KEYS)
@pytest.mark.parametrize("job", ["train", "sft"])
def test_nothing_of_the_quickstart_is_inherited_by_another_task(job: str, key: str) -> None:
    with pytest.raises(UserError) as refused:
        load_job(job, [f"{key}=mine"], examples_folder())
    text = str(refused.value)
    assert "is not set" in text
    assert f"{key} is given and config= is not, so nothing is taken from the built-in quickstart" in text
    assert text.endswith("quickstart.yaml starts from it")


def test_a_whole_task_starts_from_the_defaults(here: Path) -> None:
    (here / "rows.jsonl").write_text('{"prompt": "1", "answer": "1"}\n')
    (here / "reward.py").write_text("def main(reward_input): return 1.0\n")
    argv = ["data.train_files=rows.jsonl", "worker.actor.model.model_path=whet/quickstart"]
    argv += ["worker.reward.reward_function=reward.py", "worker.rollout.n=2"]
    config = load_job("train", argv, examples_folder())
    default = Config()
    assert config.origin == "defaults"
    assert config.source is None
    assert config.worker.actor.optim == default.worker.actor.optim
    assert config.trainer == default.trainer
    assert config.data.format_prompt is None


def test_sections_and_other_names_count_as_a_task() -> None:
    for argument in ("data={train_files: x.jsonl}", "actor_rollout_ref.model.path=mine/model", "data.train_file=x"):
        with pytest.raises(UserError, match="nothing is taken from the built-in quickstart"):
            load_job("train", [argument], examples_folder())


def test_a_file_alone_is_config(here: Path) -> None:
    folder = here / "lr=1e-6"
    folder.mkdir()
    (folder / "run.yaml").write_text("data: {seed: 7}\n")
    for argv in (["lr=1e-6/run.yaml"], ["config=lr=1e-6/run.yaml"]):
        config = load_config([*argv, "trainer.max_steps=2"])
        assert (config.data.seed, config.trainer.max_steps) == (7, 2)
        assert config.source == folder / "run.yaml"
    with pytest.raises(UserError, match="config= is given 2 times"):
        load_config(["lr=1e-6/run.yaml", "config=other.yaml"])
    with pytest.raises(UserError, match=r"none\.yaml: there is no such file"):
        load_config(["none.yaml"])


# ── the summary ──


def test_the_summary_of_training_names_what_matters() -> None:
    config = load_job("train", [f"config={QUICKSTART}", "trainer.max_steps=3"])
    rows = dict(line.split(maxsplit=1) for line in summary_lines(config, "train"))
    assert list(rows) == [
        *("config", "model", "data", "reward", "algorithm", "batch", "lr", "steps", "device", "folder")
    ]
    assert rows["config"] == str(QUICKSTART)
    assert rows["steps"] == "3"
    assert rows["lr"].startswith(f"{config.worker.actor.optim.lr:g}")
    assert rows["folder"] == "checkpoints/whet/quickstart"


@pytest.mark.parametrize("job", sorted(JOBS))
def test_every_job_has_a_summary_that_starts_with_its_config(job: str) -> None:
    for config in (Config(), load_config([f"config={QUICKSTART}", "eval.datasets=[gsm8k]", "eval.n=3"])):
        lines = summary_lines(config, job)
        assert lines[0].split()[0] == "config"
        assert any(line.startswith("model ") for line in lines)


def test_paths_below_the_working_folder_are_short(here: Path) -> None:
    (here / "mine.yaml").write_text("worker: {actor: {model: {model_path: org/model}}}\n")
    assert summary_lines(load_config([f"config={here / 'mine.yaml'}"]), "serve")[0] == "config   mine.yaml"
