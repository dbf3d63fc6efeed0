"""Paths in the config are found, or named when they are not, before any weight is loaded."""

from pathlib import Path

import pytest

from whet.config import check_files, load_config, resolve_path, run_folder
from whet.errors import UserError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data, a template, a reward and a model."""
    for name in (
        "data/train.jsonl",
        "math.jinja",
        "reward.py",
        "model/config.json",
        "empty/readme",
        "adapters/adapter_config.json",
        "runs/global_step_4/w",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link.jsonl").symlink_to("nothing.jsonl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems_of(*argv: str) -> list[str]:
    try:
        check_files(load_config(list(argv)))
    except UserError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    "argument",
    [
        "data.train_files=data/train.jsonl",
        "data.train_files=data/train.jsonl@train",
        "data.train_files=data@train",
        "data.train_files=data/train.jsonl, openai/gsm8k@test",
        "data.train_files=openai/gsm8k@train",
        "data.train_files=openai/gsm8k:main@train",
        "data.train_files=whet/quickstart@train",
        "data.image_dir=data",
        "data.format_prompt=./math.jinja",
        "data.override_chat_template=math.jinja",
        "data.override_chat_template={% for m in messages %}{{ m.content }}{% endfor %}",
        "worker.reward.reward_function=reward.py:score",
        "worker.reward.reward_function=reward.py",
        "worker.actor.model.model_path=model",
        "worker.actor.model.model_path=Qwen/Qwen2.5-7B-Instruct",
        "worker.actor.model.model_path=whet/quickstart",
        "worker.actor.model.tokenizer_path=model",
        "trainer.load_checkpoint_path=runs/global_step_4",
    ],
)
def test_what_is_there_or_on_a_hub_passes(here, argument):
    assert problems_of(argument) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("data.train_files=data/tran.jsonl", "there is no such data file or folder; did you mean data/train.jsonl?"),
        ("data.train_files=dta/train.jsonl@train", "data.train_files=dta/train.jsonl: there is no such"),
        ("data.train_files=data/train.jsonl,data/val.jsonl", "data.train_files=data/val.jsonl: there is no such"),
        ("data.val_files=data/gsm8k", "data.val_files=data/gsm8k: there is no such data file or folder"),
        ("data.val_files=https://host/x.jsonl", "download it and name the file"),
        ("data.train_files=[data/train.jsonl,data/val.jsonl]", "commas between, without brackets"),
        ("data.val_files=link.jsonl", "data.val_files=link.jsonl: this link leads to no data file or folder"),
        ("worker.actor.model.model_path=math.jinja", "is a file; name the model's folder"),
        ("worker.actor.model.model_path=adapters", "it holds adapters: merge them"),
        ("data.val_files=gsm8k", "a hub dataset is named org/name"),
        ("data.image_dir=math.jinja", "data.image_dir=math.jinja: there is no such folder"),
        (
            "data.format_prompt=./mth.jinja",
            "data.format_prompt=./mth.jinja: there is no such file; did you mean math.jinja?",
        ),
        ("data.format_prompt={{ content }}", "data.format_prompt holds a template's text"),
        ("data.override_chat_template=chat.jinja", "data.override_chat_template=chat.jinja: there is no such file"),
        ("data.chat_template_args={tools: [1]}", "data.chat_template_args.tools: whet gives the template its tools"),
        ("data.chat_template_args={'a b': 1}", "data.chat_template_args: a b is no name of a variable"),
        (f"data.override_chat_template={'long ' * 999}", "data.override_chat_template=long long"),
        ("worker.reward.reward_function=rewrd.py:f", "there is no such file; did you mean reward.py?"),
        ("worker.reward.reward_function=reward.py:f()", "expected path.py:function"),
        ("worker.reward.reward_function=math.jinja:f", "expected path.py:function"),
        ("worker.actor.model.model_path=./modle", "there is no such model folder; did you mean model?"),
        ("worker.actor.model.model_path=/nowhere/at/all", "worker.actor.model.model_path=/nowhere/at/all: there is no"),
        ("worker.actor.model.model_path=~nobody-here/model", "there is no such model folder"),
        ("worker.actor.model.model_path=empty", "the folder has no config.json"),
        ("worker.actor.model.model_path=gpt", "a hub model is named org/name"),
        ("trainer.load_checkpoint_path=runs/global_step_5", "did you mean runs/global_step_4?"),
    ],
)
def test_what_is_missing_is_named(here, argument, message):
    found = problems_of(argument)
    assert len(found) == 1
    assert found[0].startswith(argument.partition("=")[0])
    assert message in found[0]


def test_paths_start_here_and_then_at_the_config_file(here, monkeypatch):
    (here / "sub").mkdir()
    (here / "sub/run.yaml").write_text("data: {format_prompt: local.jinja, train_files: data/train.jsonl}")
    (here / "sub/local.jinja").touch()
    config = load_config(["config=sub/run.yaml"])
    assert resolve_path(config, "local.jinja") == here / "sub/local.jinja"
    assert resolve_path(config, "math.jinja") == Path("math.jinja")
    check_files(config)
    monkeypatch.chdir(here / "data")
    with pytest.raises(UserError, match=r"data/train\.jsonl: there is no such data file or folder \(nor in .*sub\)"):
        check_files(config)


def test_run_folder_is_named_after_the_experiment():
    assert run_folder(load_config([])) == Path("checkpoints/whet/demo")
    assert run_folder(load_config(["trainer.save_checkpoint_path=runs/a"])) == Path("runs/a")


def test_a_checkpoint_of_another_system_is_merged_first(here: Path) -> None:
    (here / "theirs/global_step_8/actor").mkdir(parents=True)
    (here / "theirs/global_step_8/actor/model_world_size_2_rank_0.pt").touch()
    (said,) = problems_of("trainer.load_checkpoint_path=theirs/global_step_8")
    assert "whet merge --local_dir" in said
    assert "global_step_8/actor --target_dir" in said
