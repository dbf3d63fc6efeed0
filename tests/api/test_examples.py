"""The examples of the Python API run as scripts, and the custom loop is as short as it claims to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_script

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def _run(script: str, steps: int, folder: Path) -> str:
    done = run_script(EXAMPLES / script, str(steps), folder=folder)
    assert done.code == 0, done.err
    return done.out


def test_the_custom_loop_learns_in_under_60_lines(quickstart: Path, tmp_path: Path) -> None:
    assert len((EXAMPLES / "custom_loop.py").read_text().splitlines()) < 60
    out = _run("custom_loop.py", 6, tmp_path)
    rewards = [float(line.rpartition(" ")[2]) for line in out.splitlines() if line.startswith("step")]
    assert len(rewards) == 6
    assert max(rewards[3:]) > rewards[0] + 0.15
    assert list(tmp_path.glob("checkpoints/whet/session-*/global_step_6"))


@pytest.mark.slow
def test_the_training_script_learns(quickstart: Path, tmp_path: Path) -> None:
    out = _run("train.py", 10, tmp_path)
    assert "Answer:" in out.splitlines()[-1]
    assert list(tmp_path.glob("checkpoints/whet/train-*/reward.svg"))
