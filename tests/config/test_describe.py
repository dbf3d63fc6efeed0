"""The config as text, and the reference page."""

import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli import main
from whet.config import load_config
from whet.config.describe import describe, diff, search
from whet.config.schema import all_keys
from whet.errors import UserError

DOCS = Path(__file__).parents[2] / "docs/config.md"


def test_describe_names_every_key_with_type_default_and_help():
    lines = describe().splitlines()
    for name, key in all_keys().items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert key.type_name in line
        assert key.help in line


def test_describe_shows_the_values_of_a_config():
    text = describe(load_config(["data.seed=12345"]))
    assert any(line.split()[:3] == ["data.seed", "int", "12345"] for line in text.splitlines())


def test_diff_lists_only_what_changed():
    assert diff(load_config([])) == ""
    argv = ["worker.actor.optim.lr=2e-6", "data.image_dir=pics", "trainer.logger=[file]", "data.seed=1"]
    assert diff(load_config(argv)).splitlines() == [
        "data.image_dir: null -> pics",
        "worker.actor.optim.lr: 1e-06 -> 2e-06",
        "trainer.logger: [console, file] -> [file]",
    ]


def test_the_reference_page_is_up_to_date():
    # In a process of its own: here other tests may have registered names.
    page = subprocess.run([sys.executable, "-m", "whet.config"], capture_output=True, check=True).stdout.decode()
    assert DOCS.read_text(encoding="utf-8") == page, "run: python -m whet.config > docs/config.md"


def test_words_are_searched_in_keys_help_and_other_names():
    assert "worker.actor.optim.lr_warmup_steps" in search(["WARMUP"])
    assert "worker.actor.global_batch_size" in search(["ppo_mini_batch_size"])  # verl's name
    assert "algorithm.adv_estimator" in search(["rloo"])  # a choice
    assert "data.seed" in (found := search(["seed", "shuffle"]))
    assert "worker.rollout.seed" not in found
    with pytest.raises(UserError, match=r"no key, help or other name holds 'seedd'; close names: data\.seed"):
        search(["seedd"])
    with pytest.raises(UserError, match=r"`whet config` lists every key"):
        search(["qqqqqqqq"])


@pytest.mark.parametrize("name", ["agent", "agents", "agent_loop"])
def test_features_to_come_are_known(name):
    try:
        text = search([name])
    except UserError as error:
        text = str(error)
    assert f"{name} cannot be set: " in text
    assert "is not in this version yet" in text
    for key in (f"{name}=1", f"worker.rollout.{name}.enable=true", f"trainer.{name}=1"):
        with pytest.raises(UserError, match=r"cannot be set: .* is not in this version yet"):
            load_config([key])


@pytest.mark.parametrize(
    "key", ["max_staleness=1", "async_training.staleness_threshold=0.5", "trainer.partial_rollout=true"]
)
def test_other_names_of_asynchronous_training_lead_to_its_key(key):
    with pytest.raises(UserError, match=r"has no key of its own: set trainer\.max_staleness"):
        load_config([key])


@pytest.mark.parametrize("width", [60, 80, 140])
def test_text_fits_the_terminal(width):
    text = describe(load_config(["data.train_files=" + "/long" * 10]), width)
    long = [line for line in text.splitlines() if len(line) > width]
    assert all(len(line.split()[0]) > width - 30 or len(max(line.split(), key=len)) > width - 30 for line in long)
    assert all(key.rpartition(".")[2] in text for key in all_keys())


def test_the_command_takes_words_and_keys(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["config", "warmup", "ratio", "worker.actor.optim.lr_warmup_ratio=0.25"]) == 0
    out = capsys.readouterr().out
    assert "worker.actor.optim.lr_warmup_ratio  float  0.25" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["config", "nothing_like_this"]) == 2
    assert "holds 'nothing_like_this'" in capsys.readouterr().err
