"""Ranks that torchrun has started: one drives, the others make its calls, and nobody waits for the dead."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed.torchrun_job import run_job
from distributed.workers import Unbuildable, Worker

from whet.cli import main
from whet.config import load_config
from whet.distributed import Rank, TorchrunCluster, WorkerLostError, WorkerRaisedError
from whet.distributed.devices import take_devices
from whet.distributed.torchrun import exit_code, serve_first
from whet.errors import UserError
from whet.system.launch import Launch, launched

LOST = r"^WorkerLostError: another rank ended in the middle of "


def job(program: Any) -> int:
    """The first rank runs the program with the cluster, as the command line does; the others serve it."""
    launch = launched()
    assert launch is not None
    if launch.rank:
        return serve_first(launch, "cpu")
    try:
        with TorchrunCluster(launch, "cpu") as cluster:
            program(cluster)
    except (UserError, WorkerLostError, WorkerRaisedError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return exit_code(error)
    return 0


def use_all(cluster: TorchrunCluster) -> None:
    group = cluster.open(Worker)
    assert cluster.device == "cpu"
    assert group.size == 3
    assert [rank for rank, _ in group.call("who")] == [Rank(n, 3, n, 0, "cpu") for n in range(3)]
    assert len({pid for _, pid in group.call("who")}) == 3
    assert group.call("add", 1, second=2) == [3, 3, 3]
    assert group.scatter("double", [(1,), (2,), (3,)]) == [2, 4, 6]
    assert group.start("all_reduce", 1.0).wait() == [6.0] * 3
    with pytest.raises(ValueError, match="2 tuples of arguments for 3 ranks"):
        group.scatter("double", [(1,), (2,)])
    group.call("mark_when_closed", "closed")


def test_a_group(tmp_path: Path) -> None:
    codes, outputs = run_job(tmp_path, job, use_all, world=3)
    assert codes == [0, 0, 0], outputs
    assert outputs == ["", "", ""]
    assert sorted((tmp_path / "closed").read_text().split()) == ["0", "1", "2"]


def mistake(cluster: TorchrunCluster) -> None:
    raise UserError("data.train_files: no such file")


def one_raises(cluster: TorchrunCluster) -> None:
    cluster.open(Worker).call("fail_before_collective", 1)


def first_raises(cluster: TorchrunCluster) -> None:
    cluster.open(Worker).call("fail_before_collective", 0)


def one_is_mistaken(cluster: TorchrunCluster) -> None:
    cluster.open(Unbuildable)


def one_dies(cluster: TorchrunCluster) -> None:
    group = cluster.open(Worker)
    group.call("add", 1)
    group.call("die_before_collective", 1)


@pytest.mark.parametrize(
    ("program", "codes", "first", "second"),
    [
        (mistake, [2, 2], r"^UserError: data.train_files: no such file\n$", "^$"),
        (first_raises, [1, 1], r"^WorkerRaisedError: rank 0 raised LookupError: nothing there\nTraceback", "^$"),
        (one_raises, [1, 1], LOST + r"`fail_before_collective`", r"^whet: rank 1 raised Loo"),
        (one_is_mistaken, [1, 2], LOST + r"its start", r"^whet: worker.actor.*folder\n$"),
        (one_dies, [1, -9], LOST + r"`die_before_collective`.* by peer", "^$"),
    ],
)  # fmt: skip
def test_who_fails_says_it_once(tmp_path: Path, program: Any, codes: list[int], first: str, second: str) -> None:
    found, outputs = run_job(tmp_path, job, program)
    assert found == codes, outputs
    assert re.search(first, outputs[0], re.MULTILINE), outputs[0]
    assert re.search(second, outputs[1]), outputs[1]


@pytest.mark.parametrize("command", ["train", "generate", "eval", "serve", "merge"])
def test_commands_that_are_started_once_say_so(monkeypatch, capsys, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert main([command, "anything"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"whet: whet {command} does not run under torchrun: start it once, without torchrun")
    assert error.count("\n") == 1
    assert ("trainer.n_gpus_per_node and trainer.nnodes" in error) == (command == "train")
    assert not any(tmp_path.iterdir())


def test_torchrun_decides_how_many_devices_there_are():
    config = take_devices(load_config([]), Launch(5, 8, 1, 4))
    assert (config.trainer.n_gpus_per_node, config.trainer.nnodes) == (4, 2)
    assert take_devices(config, Launch(5, 8, 1, 4)) == config  # a config.yaml that such a run wrote
    for key, launch in (("n_gpus_per_node=4", Launch(0, 2, 0, 2)), ("nnodes=2", Launch(0, 4, 0, 4))):
        with pytest.raises(UserError, match=rf"trainer\.{key}, but torchrun was started with --n"):
            take_devices(load_config([f"trainer.{key}"]), launch)
    with pytest.raises(UserError, match="same --nproc_per_node"):
        take_devices(load_config([]), Launch(0, 3, 0, 2))


def test_other_launchers_are_not_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert launched() is None
