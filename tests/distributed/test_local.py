"""The group of one, in this process."""

import subprocess
import sys
from pathlib import Path

import pytest
from distributed.workers import Worker

from whet.distributed import Group, Rank, open_local


def test_a_worker_is_called_directly_and_nothing_is_copied():
    group: Group = open_local(Worker)
    sent = object()
    worker = group.worker
    worker.echo = lambda value: value
    assert group.size == 1
    assert group.call("echo", sent)[0] is sent
    assert group.call("add", 1, second=2) == [3]
    assert group.scatter("double", [(4,)]) == [8]
    assert group.start("double", 5).wait() == [10]
    assert group.start("double", 5).done()
    assert worker.rank == Rank(0, 1, 0, 0, "cpu")


def test_exceptions_are_what_they_are():
    with pytest.raises(LookupError, match="nothing there"):
        open_local(Worker).call("fail", 0)


def test_arguments_for_more_ranks_than_there_are_is_a_mistake():
    with pytest.raises(ValueError, match="unpack"):
        open_local(Worker).scatter("double", [(1,), (2,)])


def test_close_closes_the_worker_once(tmp_path: Path):
    group = open_local(Worker)
    group.call("mark_when_closed", str(tmp_path / "closed"))
    group.close()
    group.close()
    assert (tmp_path / "closed").read_text() == "0\n"


def test_neither_ray_nor_torch_is_imported_for_it():
    code = (
        "import sys, whet.distributed as c; c.open_local(lambda rank: rank); print({'ray', 'torch'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
