"""Runs whose reward function fails on every sample: they stop with exit code 1, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from whet_process import outcome, run_folder, settled, train

from whet.training.answer_check import FORMS, WRONG

NO_VALIDATION = ("trainer.val_before_train=false", "trainer.val_freq=-1")
STEPS = ("trainer.max_steps=4", "trainer.save_freq=-1", "worker.reward.num_cpus=1")
# The judge is down while the file `down` is there, from the second step's samples on: a step scores 16.
JUDGE = """
import os
from pathlib import Path

calls = 0

def main(reward_input):
    global calls
    calls += 1
    folder = Path(__file__).parent
    if (folder / "down").exists() and calls > int((folder / "down").read_text()):
        raise ConnectionError("the judge does not answer")
    return len(set(reward_input["response"])) / 10
"""


@pytest.fixture
def judge(tmp_path: Path) -> str:
    """The argument that names the function above."""
    (tmp_path / "judge.py").write_text(JUDGE)
    return f"worker.reward.reward_function={tmp_path / 'judge.py'}"


def test_the_steps_before_are_saved_and_the_run_resumes_as_if_nothing_had_happened(tmp_path, few_rows, judge):
    code, text = train(tmp_path / "whole", *few_rows, *NO_VALIDATION, *STEPS, judge)
    assert code == 0, text
    dry_run = 2 + len(FORMS) + len(WRONG)  # rows, and the forms of the first row's answer
    (tmp_path / "down").write_text(str(dry_run + 2 * 16))
    code, text = train(tmp_path / "stopped", *few_rows, *NO_VALIDATION, *STEPS, judge)
    assert code == 1, text
    folder = run_folder(tmp_path / "stopped")
    assert "step 3: worker.reward.reward_function=" in text
    assert "failed on all 16 samples (16 raised)" in text
    assert "ConnectionError: the judge does not answer" in text.split("failed on all")[1]
    assert f"The same command goes on from {folder / 'global_step_2'}" in text
    assert text.count("Traceback") == 2  # the function's: as a warning, and at the end
    (tmp_path / "down").unlink()
    code, text = train(tmp_path / "stopped", *few_rows, *NO_VALIDATION, *STEPS, judge)
    assert code == 0, text
    assert outcome(folder, 4) == outcome(run_folder(tmp_path / "whole"), 4)


def test_validation_without_a_score_stops_before_training(tmp_path, few_rows, judge):
    (tmp_path / "down").write_text("0")
    code, text = train(tmp_path, *few_rows, *STEPS, "trainer.val_before_train=true", judge)
    assert code == 1, text
    assert "validation at step 0: " in text
    assert "ConnectionError: the judge does not answer" in text.split("validation at step 0")[1]


@pytest.mark.slow
def test_validation_without_a_score_keeps_the_step_before_it(tmp_path, few_rows, judge):
    (tmp_path / "down").write_text(str(2 + len(FORMS) + len(WRONG) + 16))
    arguments = (*few_rows, *STEPS, "trainer.val_before_train=false", "trainer.val_freq=1", judge)
    code, text = train(tmp_path, *arguments)
    assert code == 1, text
    assert "validation at step 1: " in text
    folder = run_folder(tmp_path)
    assert (folder / "global_step_1").is_dir()
    assert [line["step"] for line in settled(folder / "metrics.jsonl")] == [1]
    (tmp_path / "down").unlink()
    code, text = train(tmp_path, *arguments)
    assert code == 0, text
    assert [line["step"] for line in settled(folder / "metrics.jsonl")] == [1, 2, 3, 4]


def test_a_score_that_would_stand_in_a_counters_place_is_refused_at_the_start(tmp_path, few_rows):
    (tmp_path / "named.py").write_text("def main(reward_input): return {'overall': 1.0, 'failed': 3.0}")
    code, text = train(tmp_path, *few_rows, f"worker.reward.reward_function={tmp_path / 'named.py'}")
    assert code == 2
    assert "'failed' counts failed samples" in text
