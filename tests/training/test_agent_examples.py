"""The examples of agents: a calculator that is called, games in text and in pictures; short runs and whole ones."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import outcome, run_folder, start

from whet.cli import main
from whet.config.examples import examples_folder
from whet.tools.builtin.calculator import compute
from whet.tools.protocol import ToolError
from whet.tracking import read_metrics

AGENTS = examples_folder() / "agents"
FEW = (
    "trainer.device=cpu",
    "data.rollout_batch_size=8",
    "worker.rollout.n=4",
    "worker.actor.global_batch_size=8",
    "trainer.max_steps=2",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=2",
)
CALL = re.compile(r'<tool_call>\{"name": "calculator", "arguments": \{"expression": "([^"]*)"\}\}</tool_call>')


def run_example(folder: Path, name: str, *arguments: str) -> Path:
    """Train an example; return its run folder."""
    config = AGENTS / name / "config.yaml"
    process = start(folder, "train", f"config={config}", *arguments)
    assert process.wait(1800) == 0, process.text()
    return run_folder(folder, "guess" if name == "game" else name)


def played(run: Path) -> list[dict[str, Any]]:
    """Return the samples of the second step."""
    return pq.read_table(run / "samples" / "train_000002.parquet").to_pylist()


@pytest.fixture(scope="module")
def calculator(whet_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_example(tmp_path_factory.mktemp("calculator"), "calculator", *FEW)


@pytest.fixture(scope="module")
def game(whet_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_example(tmp_path_factory.mktemp("game"), "game", *FEW)


def test_calls_are_run_and_their_results_follow_them(calculator: Path) -> None:
    rows = played(calculator)
    called = [(row, found) for row in rows if (found := CALL.match(row["response"]))]
    assert called  # a third of the episodes begin with a well-formed call
    for row, found in called:
        assert row["turns"] > 1
        try:
            result = str(compute(found[1]))
        except ToolError as error:
            result = f"Error: {error}"
        assert row["response"][found.end() :].removeprefix("<|tool|>").startswith(result), row["response"]
    last = read_metrics(calculator / "metrics.jsonl")[-1]
    assert last["env/failed"] == last["reward/failed"] == 0
    assert last["env/branches"] == 1  # the template writes calls as the policy does


def test_only_the_policys_own_last_turn_is_rewarded(calculator: Path) -> None:
    for row in played(calculator):
        own = CALL.sub("", row["response"]) if row["turns"] == 1 else row["response"]
        if row["reward"] == 1:
            assert own.endswith(str(row["answer"]))
        assert len(row["turn_tokens"]) == row["turns"]
        assert row["reward"] in (0, 1)


def test_games_are_answered_and_turns_earn_what_they_bring(game: Path) -> None:
    rows = played(game)
    for row in rows:
        assert 1 <= row["turns"] <= 4
        assert row["turns"] == len(row["turn_rewards"])
        assert row["reward"] == pytest.approx(sum(row["turn_rewards"]))
        if row["end"] == "found":
            assert row["reward"] == pytest.approx(1.0)
    assert {row["end"] for row in rows} <= {"found", "out of guesses", "no number"}
    assert len({row["turns"] for row in rows}) > 1


@pytest.mark.parametrize("name", ["calculator", "game", "image_game"])
def test_whet_check_opens_what_plays_the_episodes(
    name: str, whet_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = f"config={AGENTS / name / 'config.yaml'}"
    assert main(["check", config]) == 0, capsys.readouterr()
    assert "episodes: " in capsys.readouterr().out
    assert main(["check", config, "worker.rollout.env=none.py:Game", "worker.rollout.tools=[]"]) != 0
    assert "none.py" in "".join(capsys.readouterr())


def test_whet_generate_plays_episodes(game: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "Guess my number from 1 to 15.", "secret": number} for number in (3, 8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "samples.jsonl"
    asked = (f"generate.files={tmp_path / 'rows.jsonl'}", f"generate.output={output}", "worker.rollout.n=2")
    process = start(tmp_path, "generate", str(game), *asked)
    assert process.wait() == 0, process.text()
    written = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["secret"] for row in written] == [3, 3, 8, 8]
    for row in written:
        assert row["turns"] == len(row["turn_rewards"])
        assert row["env_reward"] == pytest.approx(sum(row["turn_rewards"]))
        assert row["end"] in ("found", "out of guesses", "no number")


def test_whet_eval_plays_episodes(game: Path, calculator: Path, tmp_path: Path) -> None:
    for run, name in ((game, "game"), (calculator, "calculator")):
        output = tmp_path / name
        few = ("worker.rollout.val_override_config.n=1", f"eval.output={output}")
        process = start(tmp_path, "eval", str(run), *few)
        assert process.wait(300) == 0, process.text()
        assert " questions" in process.text()


def test_the_project_of_whet_new_trains(whet_home: Path, tmp_path: Path) -> None:
    assert main(["new", "--agent", str(tmp_path / "mine")]) == 0
    process = start(tmp_path / "mine", "train", "config=config.yaml", *FEW)
    assert process.wait() == 0, process.text()
    last = read_metrics(tmp_path / "mine" / "run" / "metrics.jsonl")[-1]
    assert last["env/failed"] == 0
    assert last["turns/mean"] > 1


@pytest.mark.slow
def test_pictures_of_an_asynchronous_run_are_kept_in_its_schedule(whet_home: Path, tmp_path: Path) -> None:
    several = (*FEW, "trainer.max_staleness=2", "trainer.max_steps=4", "trainer.save_freq=1")
    run = run_example(tmp_path / "first", "image_game", *several)
    again = run_example(tmp_path / "again", "image_game", *several, f"trainer.replay={run}")
    weights, optimizer, _ = outcome(run, 4)
    assert outcome(again, 4)[:2] == (weights, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calculator", "game", "image_game"])
def test_the_example_learns(name: str, whet_home: Path, tmp_path: Path) -> None:
    before = os.times()
    run = run_example(tmp_path, name)
    accuracy = [line["val/accuracy"] for line in read_metrics(run / "metrics.jsonl") if "val/accuracy" in line]
    assert accuracy[0] < 0.2
    assert accuracy[-1] > 0.8
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 600
