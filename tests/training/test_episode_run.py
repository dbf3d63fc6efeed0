"""Training with an environment: rewards per turn, resuming to the last bit, and environments that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import SMALL, outcome, run_folder, settled, start, train

from whet.tracking import read_metrics

ENV = """
import asyncio, time
from pathlib import Path

class Again:
    def __init__(self, fail="", wait=0.0):
        self.fail, self.wait, self.turn = fail, wait, 0

    def reset(self, prompt):
        self.digits = sorted(prompt.extra["problem"].split(":")[1].split())

    async def step(self, action):
        self.turn += 1
        await asyncio.sleep(self.wait)
        if self.fail == "always":
            raise ConnectionError("nobody is there")
        if self.fail == "some" and len(action) % 3 == 0:
            raise ValueError("three again")
        right = sum(a == b for a, b in zip(action.replace("Answer:", "").split(), self.digits))
        return "again", right / 10, self.turn == 2, {"right": right, "end": "played"}

    def close(self):
        with (Path(__file__).parent / "closed").open("a") as file:
            file.write("x")
"""
EPISODES = (
    "worker.reward.reward_function=null",
    "data.max_response_length=40",
    "worker.rollout.max_turn_tokens=16",
    "worker.rollout.env_timeout=30",
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The argument that names the environment above."""
    folder = tmp_path_factory.mktemp("env")
    (folder / "again.py").write_text(ENV)
    return f"worker.rollout.env={folder / 'again.py'}:Again"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str], env: str) -> Path:
    """The run folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = train(folder, *few_rows, *EPISODES, env)
    assert code == 0, text
    return run_folder(folder)


def test_metrics_and_samples_tell_of_turns_rewards_and_ends(alone: Path, env: str) -> None:
    last = read_metrics(alone / "metrics.jsonl")[-1]
    assert last["turns/mean"] == 2
    assert last["env/end_played"] == 1
    assert last["env/failed"] == 0
    rows = pq.read_table(alone / "samples" / "train_000006.parquet").to_pylist()
    assert last["reward/overall"] == pytest.approx(sum(row["reward"] for row in rows) / len(rows))
    assert last["env/right"] == pytest.approx(sum(row["info/right"] for row in rows) / len(rows))
    for row in rows:
        assert row["turns"] == len(row["turn_rewards"]) == 2
        assert row["end"] == "played"
        assert row["reward"] == pytest.approx(sum(row["turn_rewards"]))
        assert "again" in row["response"]
    closed = (Path(env.partition("=")[2].rpartition(":")[0]).parent / "closed").read_text()
    # 6 steps of 16 episodes, 3 validations of 6 rows with 2 samples, and the dry run.
    assert len(closed) == 6 * 16 + 3 * 6 * 2 + 1


def comparable(run: Path) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Weights, optimizer and metrics; how sampler and learner round differently depends on when turns came."""
    weights, optimizer, metrics = outcome(run, 6)
    return weights, optimizer, [{k: v for k, v in m.items() if not k.startswith("rollout/log_prob")} for m in metrics]


def test_a_killed_run_resumes_to_the_same_bits(
    alone: Path, tmp_path: Path, few_rows: tuple[str, str], env: str
) -> None:
    process = start(tmp_path, "train", *SMALL, *few_rows, *EPISODES, env)
    assert process.wait_for((run_folder(tmp_path) / "global_step_2").exists)
    process.kill()
    code, text = train(tmp_path, *few_rows, *EPISODES, env)
    assert code == 0, text
    assert comparable(run_folder(tmp_path)) == comparable(alone)


def test_environments_that_fail_cost_their_samples_and_are_counted(
    tmp_path: Path, few_rows: tuple[str, str], env: str
) -> None:
    short = ("trainer.max_steps=1", "trainer.val_before_train=false", "trainer.val_freq=-1")
    code, text = train(tmp_path, *few_rows, *EPISODES, *short, env, "worker.rollout.env_args.fail=some")
    assert code == 0, text
    (metrics,) = settled(run_folder(tmp_path) / "metrics.jsonl")
    assert 0 < metrics["env/failed"] < 16
    assert metrics["env/failed"] == metrics["env/failed_raised"]
    assert metrics["reward/failed"] == 0
    assert "raised ValueError: three again" in text
    assert "so the sample scores worker.reward.fallback=0" in text
    assert "again.py:Again: step of turn" in text.replace("\n", " ")


def test_a_run_whose_environments_all_fail_stops(tmp_path: Path, few_rows: tuple[str, str], env: str) -> None:
    code, text = train(tmp_path, *few_rows, *EPISODES, env, "worker.rollout.env_args.fail=always")
    assert code == 1, text
    assert "failed in all 12 episodes (12 raised), so none has a score" in text
    assert "step of turn 1 raised ConnectionError: nobody is there" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("worker.rollout.env=nowhere.py:Maze", "worker.rollout.env=nowhere.py: there is no such file"),
        ("worker.rollout.env=singel_turn", "did you mean single_turn"),
        ("worker.rollout.env_args.depth=3", "does not take worker.rollout.env_args (depth)"),
        ("worker.rollout.max_turns=0", "worker.rollout.max_turns=0: must be at least 1"),
    ],
)
def test_bad_settings_are_named_before_any_work(
    tmp_path: Path, few_rows: tuple[str, str], env: str, argument: str, said: str
) -> None:
    code, text = train(tmp_path, *few_rows, *EPISODES, env, argument)
    assert code == 2, text
    assert said in " ".join(text.split())
    assert "Traceback" not in text
