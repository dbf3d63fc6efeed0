"""What a person types: help, every mistake with exit code 2 and one message that names it, and nothing done by then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from whet import __version__
from whet.cli import examples_folder, main

SMALL = (
    "data.rollout_batch_size=4",
    "worker.rollout.n=2",
    "worker.actor.global_batch_size=4",
    "trainer.max_steps=1",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
)
ROW = {"problem": "Sort these digits: 3 1 2 5", "answer": "1 2 3 5"}

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, without a network."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused: exit code 2 before weights are loaded. Returns the message."""

    def run(*arguments: str) -> str:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert code == 2, out + err
        assert "model:" not in out
        assert "Traceback" not in out + err
        assert err.startswith("whet: ")
        return err

    return run


@pytest.fixture
def training_refused(refused: Refused, quickstart: Path) -> Refused:
    """The same for `whet train` with the built-ins made already."""
    return lambda *arguments: refused("train", f"config={examples_folder() / 'quickstart.yaml'}", *SMALL, *arguments)


@pytest.fixture
def model_copy(quickstart: Path, tmp_path: Path) -> Path:
    """The quickstart's model folder, to be damaged."""
    return Path(shutil.copytree(quickstart / "model", tmp_path / "model"))


def edit_config(model: Path, **values: object) -> str:
    """Change the model's config.json; returns the argument that names the model."""
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return f"worker.actor.model.model_path={model}"


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


# ── help ──


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help(arguments, capsys):
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"  whet {command} " in out for command in ("train", "config", "model"))
    assert str(examples_folder()) in out
    assert max(map(len, out.splitlines()[:-1])) <= 100


def test_no_folder_for_temporary_files_is_a_sentence(monkeypatch, capsys):
    def run(arguments):
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")  # as tempfile does on a full disk

    monkeypatch.setattr("whet.cli.dispatch._dispatch", run)
    assert main(["train"]) == 2
    assert "set TMPDIR" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"whet {__version__}"


def test_config_prints_every_key(capsys):
    from whet.config.schema import all_keys

    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert all(name.rpartition(".")[2] in out for name in all_keys())


def test_config_diff_prints_what_a_file_changes(capsys):
    assert main(["config", "--diff", f"config={examples_folder() / 'quickstart.yaml'}", "data.seed=7"]) == 0
    out = capsys.readouterr().out
    assert "prompt_key" in out
    assert "7" in out
    assert "image_key" not in out


def test_closed_pipe_is_no_error():
    command = f"{sys.executable} -m whet.cli config | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_mistakes_are_found_before_torch_is_imported():
    """In a process of its own, as a user starts it: the exit code arrives, and nothing slow was imported."""
    command = [sys.executable, "-X", "importtime", "-m", "whet.cli", "train", "data.rollout_batchsize=4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "unknown key data.rollout_batchsize; did you mean data.rollout_batch_size?" in done.stderr
    assert not any(line.endswith((" torch", " transformers")) for line in done.stderr.splitlines())
    assert done.stdout == ""
    assert os.listdir() == []


# ── keys and values ──


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "did you mean train?"),
        (["train", "--lr", "3"], "did you mean worker.actor.optim.lr?"),
        (["train", "-x"], "-x: expected key=value"),
        (["train", ""], "expected key=value"),
        (["train", "=1"], "expected key=value"),
        (["train", "data=1"], "is a section"),
        (["train", "data.=1"], "unknown key data."),
        (["train", "worker.rolout.n=8"], "did you mean worker.rollout.n?"),
        (["train", "config="], "name a YAML file"),
        (["train", "config=missing.yaml"], "config=missing.yaml: there is no such file"),
        (["train", "config=."], "it is a folder"),
        (["train", "config=a.yaml", "config=b.yaml"], "keep one"),
        (["train", "data.rollout_batch_size=many"], "data.rollout_batch_size=many: expected an integer"),
        (["train", "data.rollout_batch_size=4.5"], "expected an integer"),
        (["train", "data.rollout_batch_size="], "has no value"),
        (["train", "data.rollout_batch_size=null"], "null is not a value here"),
        (["train", "data.rollout_batch_size=" + "9" * 20], "is too large"),
        (["train", "data.seed=" + "9" * 400], "is too large"),
        (["train", "data.shuffle=maybe"], "data.shuffle=maybe: expected true or false"),
        (["train", "worker.actor.optim.lr=inf"], "must be a finite number"),
        (["train", "worker.actor.optim.lr=-1"], "must be at least 0"),
        (["train", "algorithm.adv_estimator=gpro"], "did you mean grpo?"),
        (["train", "worker.rollout.name=vllm", "worker.rollout.python=/no/python"], "it could not be run"),
        (["train", "trainer.logger=[consle]"], "did you mean console?"),
        (["train", "trainer.max_steps=0"], "must be at least 1"),
        (["train", "worker.rollout.val_override_config.temperature=hot"], "expected a number"),
        (["train", "trainer.project_name=/etc"], "trainer.save_checkpoint_path chooses any other place"),
        (["train", "trainer.experiment_name=../../up"], "trainer.save_checkpoint_path chooses any other place"),
        (["train", "worker.rollout.n=1"], "set worker.rollout.n to 2 or more"),
        (["train", "worker.rollout.n=1", "algorithm.adv_estimator=rloo"], "adv_estimator=rloo"),
        (
            ["train", "data.rollout_batch_size=32", "worker.actor.global_batch_size=3"],
            "set it to 2 or 4, or the latter to 30 or 33",
        ),
        (["train", "data.rollout_batch_size=32", "data.mini_rollout_batch_size=5"], "set it to 4 or 8"),
        (["config", "--dif"], "--dif: expected key=value"),
        (["config", "nope.key=1"], "unknown key nope.key"),
        (["model"], "takes a name and a folder"),
        (["model", "smollm2"], "takes a name and a folder"),
        (["model", "nope", "folder"], "choose quickstart or smollm2"),
    ],
)
def test_mistyped(refused, arguments, expected):
    assert expected in refused(*arguments)
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data: [open\n  x: {", "line 2: is not YAML"),
        ("- a\n- b\n", "must hold sections"),
        ("data:\n  seed: 1\n  seed: 2\n", "duplicate key seed"),
        ("data:\n  train_files: ${nope.x}\n", "cannot be resolved"),
        ("trainer:\n  max_step: 3\n", "unknown key trainer.max_step (mine.yaml, line 2); did you mean"),
        ("data:\n  max_prompt_length:\n", "has no value"),
        ('trainer:\n  experiment_name: "a\\0b"\n', "trainer.experiment_name"),
        ("", "worker.actor.model.model_path is not set"),
    ],
)
def test_config_files(refused, text, expected):
    assert expected in refused("train", f"config={write('mine.yaml', text)}")
    assert os.listdir() == ["mine.yaml"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.format_prompt", "nope.jinja"),
        ("data.train_files", "nope.jsonl"),
        ("data.val_files", "nope.parquet"),
        ("worker.reward.reward_function", "nope.py:score"),
        ("worker.actor.model.model_path", "./nope"),
        ("worker.actor.model.tokenizer_path", "./nope"),
        ("trainer.load_checkpoint_path", "nope/global_step_1"),
    ],
)
def test_missing_files(refused, key, value):
    message = refused("train", f"{key}={value}")
    assert f"{key}={value.partition(':')[0]}: there is no such" in message
    assert os.listdir() == []


def test_several_mistakes_are_told_at_once(refused):
    message = refused("train", "worker.rollout.n=1", "worker.actor.global_batch_size=3", "trainer.project_name=/etc")
    assert all(key in message for key in ("worker.rollout.n", "worker.actor.global_batch_size", "project_name"))


# ── the model folder ──


@pytest.mark.parametrize(
    ("file", "content", "key"),
    [
        ("config.json", b"{garbage", "model_path"),
        ("config.json", b"{}", "model_path"),
        ("config.json", b'{"model_type": "nonsense"}', "model_path"),
        ("config.json", b"\xff\xfe\x00", "model_path"),
        ("model.safetensors", b"garbage", "model_path"),
        ("model.safetensors", b"", "model_path"),
        ("generation_config.json", b"{garbage", "model_path"),
        ("tokenizer.json", b"{garbage", "tokenizer_path"),
        ("tokenizer_config.json", b"{garbage", "tokenizer_path"),
    ],
)
def test_damaged_model_folder(training_refused, model_copy, file, content, key):
    (model_copy / file).write_bytes(content)
    message = training_refused(f"worker.actor.model.model_path={model_copy}")
    assert f"worker.actor.model.{key}" in message
    assert str(model_copy) in message


def test_half_a_model_file(training_refused, model_copy):
    weights = model_copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    assert "model.safetensors" in training_refused(f"worker.actor.model.model_path={model_copy}")


def test_model_that_lacks_layers(training_refused, model_copy):
    argument = edit_config(model_copy, num_hidden_layers=3, layer_types=None)
    assert "holds no weights for model.layers.2" in training_refused(argument)


def test_tokenizer_of_another_model(training_refused, model_copy):
    argument = edit_config(model_copy, vocab_size=100)
    assert "the tokenizer has 298 tokens, the model only 100" in training_refused(argument)


def test_more_tokens_than_the_model_has_positions(training_refused):
    message = training_refused("data.max_response_length=5000")
    assert "data.max_prompt_length + data.max_response_length = 5032" in message
    assert "512" in message


@pytest.mark.parametrize(("name", "value"), [("nonsense", "1"), ("hidden_size", "wide")])
def test_overridden_model_config(training_refused, name, value):
    message = training_refused(f"worker.actor.model.override_config.{name}={value}")
    assert "worker.actor.model.override_config" in message
    assert name in message


# ── data ──


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "rows.jsonl: the file holds no rows"),
        ("{nope", "rows.jsonl:1: not valid JSON"),
        (json.dumps(ROW), "data.rollout_batch_size=4 is more than the 1 rows"),
        ("\n".join([json.dumps(ROW), json.dumps({**ROW, "problem": None})]), "rows.jsonl:2: the prompt"),
        (json.dumps({**ROW, "problem": 3}), "rows.jsonl:1: the prompt"),
        (json.dumps({"answer": "3"}), "data.prompt_key=problem: rows.jsonl:1 has no such column"),
        (json.dumps({"problem": "3"}), "data.answer_key=answer: rows.jsonl:1 has no such column"),
    ],
)
def test_data_files(training_refused, text, expected):
    assert expected in training_refused(f"data.train_files={write('rows.jsonl', text)}")
    assert os.listdir() == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["data.prompt_key=problm"], "Did you mean data.prompt_key=problem?"),
        (["data.max_prompt_length=2"], "all 2000 prompts are longer than data.max_prompt_length=2"),
        (["data.max_prompt_length=17", "data.filter_overlong_prompts=false"], "train.jsonl:2 has 20 tokens"),
        (["data.train_files=whet/quickstart"], "name a split"),
        (["data.train_files=org/name@train"], "pip install whet[hub]"),
        (["worker.actor.model.model_path=whet/nope"], "there is no such built-in"),
        (["trainer.device=cuda"], "trainer.device=cuda"),
    ],
)
def test_data_and_builtins(training_refused, arguments, expected):
    import torch

    if expected == "trainer.device=cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert expected in training_refused(*arguments)
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ problem", "prompt.jinja:1"),
        ("{{ problm }}", "Did you mean problem?"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_templates(training_refused, text, expected):
    message = training_refused(f"data.format_prompt={write('prompt.jinja', text)}")
    assert "data.format_prompt" in message
    assert expected in message


# ── reward ──


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def score(): return 1.0", "which cannot be called"),
        ("def score(a, b, c): return 1.0", "which cannot be called"),
        ("def score(reward_input): return None", "train.jsonl:1"),
        ("def score(reward_input): return 'good'", "train.jsonl:1"),
        ("def score(reward_input): return {'accuracy': 1.0}", "overall"),
        ("def score(reward_inputs): return [1.0]", "reward.py:score"),
        ("def score(reward_input: ", "SyntaxError"),
        ("import no_such_package\ndef score(reward_input): return 1.0", "No module named 'no_such_package'"),
        ("def other(reward_input): return 1.0", "has no function score"),
        ("score = 3", "not a function"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_reward_functions(training_refused, text, expected):
    message = training_refused(f"worker.reward.reward_function={write('reward.py', text)}:score")
    assert "worker.reward.reward_function" in message
    assert expected in message
    assert not list(Path().glob("checkpoints/*/*/global_step_*"))
    assert not list(Path().glob("checkpoints/*/*/metrics.jsonl"))


# ── the run folder ──


@pytest.mark.parametrize("place", ["a_file/below", "/proc/whet", "/dev/null/whet"])
def test_folder_that_cannot_be_written(training_refused, place):
    Path("a_file").write_text("")
    message = training_refused(f"trainer.save_checkpoint_path={place}")
    assert "trainer.save_checkpoint_path: cannot write to" in message
    assert os.listdir() == ["a_file"]


@pytest.mark.parametrize("place", ["empty", "empty/global_step_3"])
def test_nothing_to_continue_from(training_refused, place):
    Path("empty/global_step_3").mkdir(parents=True)
    message = training_refused(f"trainer.load_checkpoint_path={place}")
    assert "trainer.load_checkpoint_path" in message
    assert "manifest.json" in message


def test_logger_that_is_not_installed(training_refused):
    pytest.importorskip("torch")
    try:
        import mlflow  # noqa: F401
    except ImportError:
        assert "pip install 'whet[mlflow]'" in training_refused("trainer.logger=[mlflow]")
    else:
        pytest.skip("mlflow is installed")


def test_home_of_nobody_is_a_plain_name(capsys, quickstart):
    assert main(["train", *SMALL, "trainer.save_checkpoint_path=~nobody_at_all/run"]) == 0
    assert (Path("~nobody_at_all") / "run" / "metrics.jsonl").is_file()


def test_model_into_a_place_that_cannot_be_written(quickstart, refused):
    assert "cannot be made" in refused("model", "quickstart", "/proc/whet")


def test_model_is_written_once(capsys, quickstart, refused):
    assert main(["model", "quickstart", "new/folder"]) == 0
    assert (Path("new/folder") / "config.json").is_file()
    assert "new/folder exists" in refused("model", "quickstart", "new/folder")
