"""Ctrl-C once finishes the step, saves and exits 0; twice stops at once; either way the run can go on."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from patience import PATIENCE
from whet_process import SMALL, outcome, run_folder, start, train

STEPS = ("trainer.max_steps=12", "trainer.save_freq=-1", "trainer.val_freq=-1")
NEVER = ("worker.reward.timeout=600",)  # longer than a test waits: what ends the call is the signal

# Takes a while, so that a step has a middle to be interrupted in; the dry run, which has two rows, goes at once.
SLOW_REWARD = """
import time
from pathlib import Path

def compute_score(reward_inputs):
    if len({{each["ground_truth"] for each in reward_inputs}}) > 2:
        Path("{folder}", "scoring").touch()
        time.sleep({seconds})
    return [{{"overall": float(len(each["response"]) % 3)}} for each in reward_inputs]
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """The run folder of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = train(folder, *few_rows, *STEPS)
    assert code == 0, text
    return run_folder(folder)


def steps_done(run: Path) -> int:
    """The last step in metrics.jsonl, -1 when there is none."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return json.loads(lines[-1])["step"] if lines else -1


def slow_reward(folder: Path, seconds: float) -> str:
    """The argument that names a reward function which takes so long a call, and leaves a file when it begins."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slow.py").write_text(SLOW_REWARD.format(folder=folder, seconds=seconds))
    return f"worker.reward.reward_function={folder / 'slow.py'}:compute_score"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_once_finishes_the_step_and_saves(tmp_path, few_rows, alone, number):
    run = run_folder(tmp_path)
    process = start(tmp_path, "train", *SMALL, *few_rows, *STEPS)
    assert process.wait_for(lambda: steps_done(run) >= 3)
    process.signal(number)
    assert process.wait() == 0, process.text()
    done = steps_done(run)
    assert 3 <= done < 12
    assert [path.name for path in run.glob("global_step_*")] == [f"global_step_{done}"]
    assert "stopping: this step is finished and saved first" in process.text()
    assert f"stopped after {done} of 12 steps" in process.text()
    assert "the same command goes on from here" in process.text()
    assert "Traceback" not in process.text()

    code, text = train(tmp_path, *few_rows, *STEPS)
    assert code == 0, text
    assert outcome(run, 12) == outcome(alone, 12)


def test_terminal_sends_it_to_the_whole_process_group(tmp_path, few_rows):
    reward = slow_reward(tmp_path, 0.5)
    process = start(tmp_path, "train", *SMALL, *few_rows, *STEPS, reward, own_group=True)
    assert process.wait_for(lambda: steps_done(run_folder(tmp_path)) >= 1)
    os.killpg(process.process.pid, signal.SIGINT)
    code, text = process.wait(), process.text()
    assert code == 0, text
    done = steps_done(run_folder(tmp_path))
    assert (run_folder(tmp_path) / f"global_step_{done}" / "manifest.json").exists()
    assert "Traceback" not in text
    metrics = [json.loads(line) for line in (run_folder(tmp_path) / "metrics.jsonl").read_text().splitlines()]
    assert all(line.get("reward/failed", 0) == 0 for line in metrics)  # the signal did not reach the reward workers


def test_twice_stops_at_once_and_keeps_the_last_checkpoint(tmp_path, few_rows, alone):
    run = run_folder(tmp_path)
    assert train(tmp_path, *few_rows, *STEPS, "trainer.max_steps=4")[0] == 0
    process = start(tmp_path, "train", *SMALL, *few_rows, *STEPS, *NEVER, slow_reward(tmp_path, 600))
    assert process.wait_for((tmp_path / "scoring").exists)
    process.signal(signal.SIGINT)
    assert process.wait_for(lambda: "once more to stop at once" in process.text())
    process.signal(signal.SIGINT)
    asked = time.monotonic()
    assert process.wait() == 130, process.text()
    assert time.monotonic() - asked < PATIENCE
    assert "Traceback" not in process.text()
    assert "the same command goes on from the last checkpoint" in process.text()
    assert [path.name for path in run.glob("global_step_*")] == ["global_step_4"]

    code, text = train(tmp_path, *few_rows, *STEPS)
    assert code == 0, text
    assert outcome(run, 12)[:2] == outcome(alone, 12)[:2]


def test_during_the_first_validation(tmp_path, few_rows):
    process = start(tmp_path, "train", *SMALL, *few_rows, *STEPS, slow_reward(tmp_path, 1.5))
    assert process.wait_for((tmp_path / "scoring").exists)
    process.signal(signal.SIGINT)
    assert process.wait() == 0, process.text()
    assert steps_done(run_folder(tmp_path)) <= 0
    assert not list(run_folder(tmp_path).glob("global_step_*"))
    assert "start it again" in process.text()
    assert "Traceback" not in process.text()


def test_before_the_weights_are_loaded(tmp_path, few_rows):
    (tmp_path / "slow.py").write_text("import time\ndef main(each):\n    time.sleep(600)\n    return 1.0\n")
    reward = f"worker.reward.reward_function={tmp_path / 'slow.py'}"
    process = start(tmp_path, "train", *SMALL, *few_rows, *STEPS, *NEVER, reward)
    assert process.wait_for(lambda: "val data:" in process.text())
    process.signal(signal.SIGINT)
    asked = time.monotonic()
    assert process.wait() == 130, process.text()
    assert time.monotonic() - asked < PATIENCE
    assert "Traceback" not in process.text()
