"""Groups of processes that whet made are ended, and no other is."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from distributed.processes import gone
from patience import PATIENCE

from whet.system import groups

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(child.pid, flush=True)
time.sleep(1000)
"""


@contextmanager
def family(**options: bool) -> Iterator[tuple[subprocess.Popen[str], int]]:
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, **options)
    child = int(parent.stdout.readline())
    try:
        yield parent, child
    finally:
        for pid in (parent.pid, child):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()


def test_a_group_is_ended_with_its_leader():
    with family(start_new_session=True) as (parent, child):
        leader = groups.leader_of(parent.pid)
        assert groups.lives(leader)
        assert groups.end(leader)
        parent.wait(PATIENCE)
        assert gone(child)
        assert not groups.lives(leader)
        assert not groups.end(leader)


@pytest.mark.parametrize("options", [{"start_new_session": True}, {"process_group": 0}])
def test_what_a_dead_leader_left_is_ended(options: dict):
    with family(**options) as (parent, child):
        leader = groups.leader_of(parent.pid)
        parent.kill()
        parent.wait()
        assert not gone(child, 0.2)
        assert groups.end(leader)
        assert gone(child)


def test_a_process_in_our_own_group_is_ended_alone():
    with family() as (parent, child):  # this test's group: killing it would end the test
        assert groups.end(groups.leader_of(parent.pid))
        assert parent.wait(PATIENCE) == -signal.SIGKILL
        assert not gone(child, 0.2)


@pytest.mark.parametrize("change", [{"started": 1}, {"started": 2**40}])
def test_a_number_that_another_process_got_is_left_alone(change: dict):
    with family(start_new_session=True) as (parent, child):
        earlier = dataclasses.replace(groups.leader_of(parent.pid), **change)
        assert not groups.lives(earlier)
        assert not groups.end(earlier)
        assert parent.poll() is None
        assert not gone(child, 0.2)


@pytest.mark.parametrize("change", [{"session": 1}, {"started": 2**40}])
def test_a_group_of_another_session_or_time_is_left_alone(change: dict):
    """The leader is gone, and its number has since been another group's."""
    with family(start_new_session=True) as (parent, child):
        other = dataclasses.replace(groups.leader_of(parent.pid), **change)
        parent.kill()
        parent.wait()
        assert not groups.end(other)
        assert not gone(child, 0.2)


def test_a_process_leads_a_group_once_told_to():
    code = "import os; from whet.system import groups; a = groups.lead(); b = groups.lead(); assert a == b, (a, b);"
    code += "assert a.pid == os.getpid() == os.getpgrp(); print('leads')"
    for options in ({}, {"start_new_session": True}):
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, **options).stdout == b"leads\n"


def test_a_name_with_parentheses_is_read(tmp_path):
    """proc(5) puts the name in parentheses, and a process chooses its name."""
    code = "import time; open('/proc/self/comm', 'w').write(') 1 1 1 (x'); print(1, flush=True); time.sleep(100)"
    odd = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    odd.stdout.readline()
    leader = groups.leader_of(odd.pid)
    assert leader.session == odd.pid
    assert groups.end(leader)
    assert odd.wait(PATIENCE) == -signal.SIGKILL
