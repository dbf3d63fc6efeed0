"""Whether a process is getting on."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from whet.distributed.activity import Activity, alive
from whet.distributed.frames import Beat

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")


def idle_after(activity: Activity, work, seconds: float = 0.6) -> float:
    """Idleness as a thread of heartbeats sees it, before and after something is done."""
    read = []
    activity.begin(1)
    beat = threading.Thread(target=lambda: (activity.read(), time.sleep(seconds), read.append(activity.read().idle)))
    beat.start()
    work(seconds - 0.1)
    beat.join()
    activity.end()
    return read[0]


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def spin_elsewhere(seconds: float) -> None:
    code = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    subprocess.run([sys.executable, "-c", code])


def test_sleeping_is_idle_and_work_is_not():
    assert idle_after(Activity(), time.sleep) > 0.5
    assert idle_after(Activity(), spin) < 0.1


def test_the_work_of_children_counts_while_they_run_and_after():
    assert idle_after(Activity(), lambda seconds: spin_elsewhere(seconds + 0.5)) < 0.3
    assert idle_after(Activity(), lambda seconds: spin_elsewhere(0.1), 1.0) < 0.95


def test_saying_that_one_is_alive_counts():
    said = []
    idle = idle_after(Activity(), lambda seconds: (time.sleep(seconds), said.append(time.monotonic()), alive()))
    assert idle <= time.monotonic() - said[0]  # which was half a second after the beginning


def test_nobody_is_idle_between_calls():
    assert Activity().read() == Beat(None, 0.0, False)
