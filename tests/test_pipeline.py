"""examples/pipeline: fine-tuned, trained, merged, evaluated and served, with numbers that agree from job to job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "pipeline" / "run.sh"


@pytest.mark.slow
def test_every_job_says_the_same_of_the_same_model(quickstart: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="whet serve needs whet[serve]")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(SCRIPT), "out"], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "the jobs agree"
    again = subprocess.run(
        ["sh", str(SCRIPT), "out"], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True
    )
    assert again.returncode != 0  # the folder is there already, and nothing in it is touched
