"""State of a run by its lock and its log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whet.tracking.status import read_status

HOLD = """
import sys
from whet.tracking.run_folder import RunFolder
with RunFolder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that has finished."""
    (tmp_path / "run.log").write_text("step 14\nfinished after 14 of 14 steps in 28.0s\n")
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="the lock of another process is asked about on Linux")
def test_a_run_is_running_while_its_process_holds_the_folder(run: Path) -> None:
    assert read_status(run) == "finished"
    arguments = [sys.executable, "-c", HOLD, str(run)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert read_status(run) == "running"
        again = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert "in use by another run" in again.stderr  # asking did not take the lock away
        holder.communicate("")
    assert read_status(run) == "finished"


def test_a_run_without_its_closing_lines_has_stopped(run: Path) -> None:
    (run / "run.log").write_text("step 14\n")
    assert read_status(run) == "stopped"
    (run / "run.log").unlink()
    assert read_status(run) == "stopped"
