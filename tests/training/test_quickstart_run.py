"""`whet train` on a terminal; tests/journeys has the same command as a newcomer types it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from whet_process import start

pytestmark = pytest.mark.early


def test_a_live_terminal_shows_the_same(quickstart, tmp_path):
    """On a pseudo-terminal the bars are drawn and the lines still come."""
    pty = pytest.importorskip("pty")
    arguments = [
        "train",
        "trainer.max_steps=2",
        "data.rollout_batch_size=4",
        "worker.actor.global_batch_size=4",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
    ]
    ours, theirs = pty.openpty()
    process = start(tmp_path, *arguments, terminal=Path(os.ttyname(theirs)))
    opened = process.wait_for(lambda: (tmp_path / "checkpoints").exists())
    assert opened, os.read(ours, 65536).decode()
    os.close(theirs)
    shown = _read_all(ours)
    assert process.wait() == 0, shown
    assert "rollout" in shown
    assert "step 2/2" in shown
    assert "\x1b[" in shown
    log = (Path(tmp_path) / "checkpoints" / "whet" / "quickstart" / "run.log").read_text()
    assert "\x1b[" not in log
    assert "step 2/2" in log


def _read_all(descriptor: int) -> str:
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal so
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(descriptor)
    return b"".join(pieces).decode(errors="replace")
