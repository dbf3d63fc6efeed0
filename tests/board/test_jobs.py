"""The queue of resampling: one request at a time, in a process that may fail, hang, or be ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whet.board import jobs as module
from whet.board.jobs import Jobs
from whet.errors import UserError

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)["request"]
    if request["do"] == "die":
        os._exit(3)
    if request["do"] == "hang":
        time.sleep(60)
    found = {"error": "no such sample"} if request["do"] == "fail" else {"process": os.getpid(), "do": request["do"]}
    print(json.dumps(found), flush=True)
"""


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    opened = Jobs((sys.executable, "-c", WORKER))
    yield opened
    opened.close()


def wait(jobs: Jobs, number: int) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (found := jobs.state(number))["state"] in ("waiting", "running"):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_one_process_answers_in_order_and_failures_are_answers(jobs: Jobs) -> None:
    numbers = [jobs.add(Path("run"), {"do": do}) for do in ("a", "fail", "b", "die", "c")]
    found = [wait(jobs, number) for number in numbers]
    assert [each["state"] for each in found] == ["done", "failed", "done", "failed", "done"]
    assert found[1]["error"] == "no such sample"
    assert "ended: it died" in found[3]["error"]
    assert found[0]["process"] == found[2]["process"]
    assert found[4]["process"] != found[0]["process"]  # another one, started when it was needed


def test_cancelling_ends_what_runs_and_takes_out_what_waits(jobs: Jobs) -> None:
    hanging, waiting = jobs.add(Path("run"), {"do": "hang"}), jobs.add(Path("run"), {"do": "a"})
    while jobs.state(hanging)["state"] == "waiting":
        time.sleep(0.01)
    assert jobs.state(waiting)["before"] == 0
    jobs.cancel(waiting)
    jobs.cancel(hanging)
    assert wait(jobs, hanging)["state"] == wait(jobs, waiting)["state"] == "cancelled"
    assert wait(jobs, jobs.add(Path("run"), {"do": "b"}))["state"] == "done"


def test_the_queue_is_bounded_and_unknown_numbers_are_told(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 2)
    hanging = jobs.add(Path("run"), {"do": "hang"})
    while jobs.state(hanging)["state"] == "waiting":
        time.sleep(0.01)
    jobs.add(Path("run"), {"do": "a"})
    jobs.add(Path("run"), {"do": "a"})
    with pytest.raises(UserError, match="2 requests are waiting already"):
        jobs.add(Path("run"), {"do": "a"})
    with pytest.raises(UserError, match="there is no request 99"):
        jobs.state(99)


def test_a_closed_queue_takes_nothing(jobs: Jobs) -> None:
    jobs.close()
    with pytest.raises(UserError, match="ending"):
        jobs.add(Path("run"), {"do": "a"})
