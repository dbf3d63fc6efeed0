"""Workers that die, hang or stop: noticed, named with their last words, and nothing left of anybody."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from distributed.processes import gone
from distributed.workers import Worker
from patience import PATIENCE

from whet.distributed import Group, Placement, WorkerLostError, WorkerRaisedError, open_ray

pytestmark = pytest.mark.slow

DRIVER = """
import sys, time
from distributed.workers import Worker
from whet.distributed import Cluster, Placement
with Cluster(Placement(per_node=2, device="cpu")) as cluster:
    group = cluster.open(Worker)
    print(*(pid for _, pid in group.call("who")), *group.call("start_child"), flush=True)
    print("working", flush=True)
    group.call("compute", 600)
"""


def two(timeout: float | None = 3.0) -> Group:
    return open_ray(Worker, Placement(per_node=2, device="cpu", timeout=timeout))


def pids_of(group: Group) -> list[int]:
    return [pid for _, pid in group.call("who")] + group.call("start_child")


def test_a_killed_rank_is_named_with_its_last_words(own_ray: None):
    group = two(timeout=None)
    pids = pids_of(group)
    start = time.monotonic()
    with pytest.raises(WorkerLostError) as caught:
        group.call("die", 1)
    assert time.monotonic() - start < PATIENCE
    text = str(caught.value)
    assert caught.value.ranks == [1]
    assert text.startswith(f"rank 1 (process {pids[1]} on ")
    assert "died: the process ended without a word, as one does that was killed" in text
    assert "last printed:\n    these are my last words" in text
    assert re.search(r"rank 0 was:\n  at .*\n(.*\n)*.*in compute\n.*in die", text)
    assert all(gone(pid) for pid in pids)
    with pytest.raises(WorkerLostError):
        group.call("double", 1)
    logs = Path(re.search(r"prints and stacks of all ranks: (.*)/rank_\*", text).group(1))
    assert "in compute" in (logs / "rank_0.stack").read_text()


def test_a_rank_that_sleeps_for_ever_is_told_from_those_that_wait_for_it(own_ray: None):
    group = two()
    pids = pids_of(group)
    start = time.monotonic()
    with pytest.raises(WorkerLostError) as caught:
        group.call("sleep_before_collective", 0, 1000)
    assert time.monotonic() - start < PATIENCE
    text = str(caught.value)
    assert caught.value.ranks == [0]
    assert "did nothing for 3 s in the middle of a call" in text
    assert re.search(r"at \(innermost first\):\n    File .*workers\.py., line \d+ in sleep_before_collective", text)
    assert "trainer.worker_timeout" in text
    assert all(gone(pid) for pid in pids)


def test_a_stopped_rank_gives_no_sign_of_life(own_ray: None):
    group = two()
    pids = pids_of(group)
    with pytest.raises(WorkerLostError, match="gave no sign of life for 3 s") as caught:
        group.call("stop")
    assert set(caught.value.ranks) <= {0, 1}
    assert all(gone(pid) for pid in pids)


def test_work_and_waiting_outside_are_not_hanging(own_ray: None):
    group = two(timeout=2.0)
    try:
        assert all(group.call("compute", 5.0))
        assert group.call("wait_outside", 5.0) == ["done", "done"]
        time.sleep(4)  # nobody works between calls
        assert group.call("double", 1) == [2, 2]
    finally:
        group.close()


def test_a_rank_that_raises_frees_those_that_wait_for_it(own_ray: None):
    group = two()
    pids = pids_of(group)
    with pytest.raises(WorkerRaisedError, match="rank 1 raised LookupError"):
        group.call("fail_before_collective", 1)
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_caller_is_the_end_of_all(own_ray: None, number: int):
    """Ctrl-C reaches every process of the terminal's group; SIGKILL gives the caller no time to clean up."""
    tests = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r})\n{DRIVER}"
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 4
        assert driver.stdout.readline() == "working\n"
        everybody = psutil.Process(driver.pid).children(recursive=True)
        assert {"gcs_server", "raylet"} <= {each.name() for each in everybody}
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)
        else:
            driver.kill()
        error = driver.communicate(timeout=2 * PATIENCE)[1]
        assert driver.returncode == -number, error
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in error
        assert all(gone(pid) for pid in pids)
        assert all(gone(each.pid, 100) for each in everybody)  # Ray's own agents look for their parent once a minute
    finally:
        driver.kill()
