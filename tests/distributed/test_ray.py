"""One process for each device, over a Ray of our own: calls, ranks, exceptions, and nothing left."""

import os
import sys
from pathlib import Path

import psutil
import pytest
from distributed.processes import gone
from distributed.workers import Unbuildable, Worker

from whet.distributed import Cluster, Group, Placement, Rank, WorkerRaisedError, open_ray
from whet.distributed.address import running_address
from whet.errors import UserError

pytestmark = pytest.mark.early


def cpus(count: int, **settings: float | int | None) -> Placement:
    return Placement(per_node=count, device="cpu", **settings)


def test_two_ranks_are_joined_called_and_closed(own_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The quick one, with all that a run does when nothing goes wrong; this process outlives it, with its group."""
    monkeypatch.setenv("WHET_TEST_VARIABLE", "passed on")
    monkeypatch.setenv("RAY_process_group_cleanup_enabled", "0")  # as in Ray 2.55 and older; see test_own_ray.py
    group: Group = open_ray(Worker, cpus(2))
    try:
        met = group.call("who")
        listens_on_loopback_and_hides_its_token()
        assert [os.getpgid(pid) for _, pid in met] == [pid for _, pid in met]
        assert [rank for rank, _ in met] == [Rank(0, 2, 0, 0, "cpu"), Rank(1, 2, 1, 0, "cpu")]
        assert len({os.getpid(), *(pid for _, pid in met)}) == 3
        assert group.call("all_reduce", 1.0) == [3.0, 3.0]
        assert group.scatter("add", [(1, 10), (2, 20)]) == [11, 22]
        assert group.call("add", 1, second=2) == [3, 3]
        assert group.call("environment", "WHET_TEST_VARIABLE") == ["passed on"] * 2
        assert group.call("environment", "WORLD_SIZE") == ["2", "2"]

        with pytest.raises(
            WorkerRaisedError, match=r"rank 1 raised LookupError: nothing there(.|\n)*workers\.py"
        ) as caught:
            group.call("fail", 1)
        assert isinstance(caught.value.cause, LookupError)
        assert caught.value.rank == 1
        with pytest.raises(UserError, match=r"^data\.seed: odd$"):
            group.call("fail", 0, "data.seed: odd")
        with pytest.raises(ValueError, match="3 tuples of arguments for 2 ranks"):
            group.scatter("double", [(1,)] * 3)
        assert group.call("double", 21) == [42, 42]  # all ranks had answered: the group goes on

        later = group.start("compute", 0.5)
        assert not later.done()
        assert all(later.wait())
        assert later.done()
        child = group.call("start_child")[0]
        group.call("mark_when_closed", str(tmp_path / "closed"))
    finally:
        group.close()
    assert sorted((tmp_path / "closed").read_text().split()) == ["0", "1"]
    assert all(gone(pid) for pid in [child, *(pid for _, pid in met)])
    with pytest.raises(RuntimeError, match="closed"):
        group.call("double", 1)
    group.close()


def listens_on_loopback_and_hides_its_token() -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    assert {"gcs_server", "raylet"} <= {process.name() for process in processes}
    sockets = [each for process in processes for each in process.net_connections("inet")]
    listening = [each.laddr.ip.removeprefix("::ffff:") for each in sockets if each.status == psutil.CONN_LISTEN]
    assert len(listening) > 5
    assert set(listening) == {"127.0.0.1"}
    token = os.environ["RAY_AUTH_TOKEN"]
    assert not any(token in argument for process in processes for argument in process.cmdline())


@pytest.mark.slow
def test_four_ranks_in_two_pools(own_ray: None):
    with Cluster(cpus(4, rollout=1)) as cluster:
        learn, rollout = cluster.open(Worker, "learn"), cluster.open(Worker, "rollout")
        assert (learn.size, rollout.size) == (3, 1)
        sampling = rollout.start("compute", 1.0)
        assert learn.call("all_reduce", 0.0) == [3.0] * 3  # a world of its own
        assert not sampling.done()
        sampling.wait()
        assert rollout.call("all_reduce", 5.0) == [5.0]


@pytest.mark.slow
def test_four_ranks_reduce_and_arguments_are_tensors(own_ray: None):
    import torch

    group = open_ray(Worker, cpus(4))
    try:
        assert group.call("all_reduce", 0.0) == [6.0] * 4
        sent = torch.arange(1000, dtype=torch.bfloat16)
        for received in group.call("double", sent):
            assert torch.equal(received, sent * 2)
    finally:
        group.close()


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="torch takes no more threads than cores")
def test_the_environment_is_set_before_torch_is_imported(own_ray: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # Ray says one
    group = open_ray(Worker, cpus(1))
    try:
        assert group.call("torch_threads") == [2]
    finally:
        group.close()


@pytest.mark.slow
def test_a_worker_that_cannot_be_built_says_why(own_ray: None):
    with pytest.raises(UserError, match=r"^worker\.actor\.model\.model_path: no such folder$"):
        open_ray(Unbuildable, cpus(2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placement", "sentence"),
    [
        (Placement(per_node=2, device="cuda"), r"trainer\.n_gpus_per_node=2, .* but this machine has 1: .* 0 GPUs"),
        (Placement(per_node=1, nodes=2, device="cpu"), r"trainer\.nnodes=2: a run needs 2 machines .* `ray start"),
    ],
)
def test_more_devices_than_there_are(own_ray: None, placement: Placement, sentence: str):
    with pytest.raises(UserError, match=sentence):
        open_ray(Worker, placement)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:9", r"RAY_ADDRESS=127\.0\.0\.1:9: no Ray cluster answers there"),
        ("nonsense", "RAY_ADDRESS=nonsense: no Ray cluster answers there"),
        ("ray://127.0.0.1:10001", "such as 10.0.0.1:6379"),
        ("auto", "RAY_ADDRESS=auto: no Ray cluster runs on this machine"),
    ],
)
def test_an_address_where_no_ray_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, sentence: str):
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UserError, match=sentence):
        open_ray(Worker, cpus(2))


def test_a_note_that_a_dead_cluster_left_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    assert running_address() is None


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"n_gpus_per_node=2.*pip install 'whet\[ray\]'"):
        open_ray(Worker, cpus(2))
