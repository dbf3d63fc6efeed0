"""A child's exit code, and signals that are left to it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from whet.system.child import run_child

# Told to end, it exits with 0 as a run does that has saved; nothing is left to wait for where it is not told.
POLITE = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "os.kill(os.getppid(), signal.{}); time.sleep({})"
)


@pytest.mark.parametrize(("name", "seconds"), [("SIGTERM", 60), ("SIGINT", 0)])
def test_a_stop_is_told_from_an_end(name: str, seconds: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run_child([sys.executable, "-c", POLITE.format(name, seconds)]) == (0, True)
    assert signal.getsignal(signal.SIGTERM) == before


def test_codes(tmp_path: Path) -> None:
    assert run_child([sys.executable, "-c", "raise SystemExit(3)"]) == (3, False)
    killed = "import os; os.kill(os.getpid(), 9)"
    assert run_child([sys.executable, "-c", killed]) == (128 + 9, False)
    program = "import os; open('there', 'w').write(os.environ['WORD'])"
    assert run_child([sys.executable, "-c", program], tmp_path, {"WORD": "yes"}) == (0, False)
    assert (tmp_path / "there").read_text() == "yes"
