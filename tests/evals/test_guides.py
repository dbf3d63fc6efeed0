"""The commands of docs/generate.md and docs/eval.md run, those that need more than this machine are in order."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from evals.chat_server import ChatServer
from evals.conftest import read_lines

from whet.cli import examples_folder
from whet.config import load_config, with_values
from whet.config.checks.eval import check_eval
from whet.evals.extract import EXTRACTORS
from whet.evals.metrics import METRICS
from whet.evals.registry import BUILT_IN, chosen

DOCS = Path(__file__).parents[2] / "docs"
Run = Callable[..., str]


def commands(page: str, language: str) -> list[list[str]]:
    blocks = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("whet ")]


@pytest.fixture(autouse=True)
def examples(here: Path, quickstart: Path) -> None:
    (here / "examples").symlink_to(examples_folder().absolute())


def test_generate_guide(whet: Run) -> None:
    for command in commands("generate.md", "sh"):
        whet(*command)
    assert len(read_lines("samples.jsonl")) == 800
    assert Path("plain.parquet").exists()
    columns = re.findall(r"^\| `(\w+)` \|", (DOCS / "generate.md").read_text(), re.MULTILINE)
    assert {*columns, "problem", "answer"} == read_lines("samples.jsonl")[0].keys()


@pytest.mark.slow
def test_eval_guide(whet: Run, chat_server: ChatServer) -> None:
    chat_server.reply = lambda body: "Answer: " + " ".join(sorted(re.findall(r"\d", body["messages"][-1]["content"])))
    for command in commands("eval.md", "sh"):
        whet(*[part.replace("http://127.0.0.1:8000/v1", chat_server.address) for part in command])
    served = json.loads(Path("eval_api/report.json").read_text())["datasets"]["val"]
    assert served["metrics"]["avg@4"]["mean"] == 1  # that server sorts
    both = json.loads(Path("eval_quickstart/report.json").read_text())["datasets"]
    first, second = (both[name]["metrics"]["avg@4"]["mean"] for name in ("digits", "as_trained"))
    assert first == pytest.approx(second, abs=0.02)  # the one asks for the form, the other only for the text
    text = (DOCS / "eval.md").read_text()
    for name in re.findall(r"`([\w/]+\.\w+|NAME/[\w.]+)` ?[|,]", text):
        if name.startswith(("report", "scores", "config.yaml")):
            assert (Path("eval_samples") / name).exists(), name


def test_commands_that_need_more_are_in_order() -> None:
    others = [command for command in commands("eval.md", "text") if command[0] == "eval"]
    assert len(others) == 4
    for command in others[2:]:
        config = load_config([part.replace("MODEL", "whet/quickstart") for part in command[1:]])
        check_eval(config)
        assert chosen(config)


def test_the_guide_names_everything_there_is() -> None:
    text = (DOCS / "eval.md").read_text()
    assert all(f"| `{name}` |" in text for name in [*EXTRACTORS, *METRICS])
    assert all(f"`{name}`" in text for name in BUILT_IN)


@pytest.mark.parametrize("name", ["math.yaml", "vision_api.yaml", "quickstart.yaml"])
def test_examples_are_in_order(name: str) -> None:
    argv = [f"config={examples_folder() / 'eval' / name}", "worker.actor.model.model_path=whet/quickstart"]
    config = load_config([*argv, "eval.api.base_url=http://127.0.0.1:8000/v1"])
    check_eval(config)
    datasets = [*dict.fromkeys([*config.eval.datasets, *config.eval.definitions])]
    config = with_values(config, {"eval.datasets": datasets})
    assert len(chosen(config)) == len(config.eval.datasets)
