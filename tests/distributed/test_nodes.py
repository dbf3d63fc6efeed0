"""Several machines, as Ray's own test cluster has them on one: a cluster that was there before and stays."""

from collections.abc import Iterator

import pytest
from distributed.processes import gone, nothing_left
from distributed.workers import Worker

from whet.distributed import Cluster, Placement, Rank, WorkerLostError, open_ray, ray_cluster
from whet.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machines() -> Iterator[str]:
    """Two machines with two CPUs each; nothing of them is left in the end."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'whet[ray]'")
    from ray.cluster_utils import Cluster as Machines

    with nothing_left():
        with ray_cluster.starting():
            machines = Machines(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
            machines.add_node(num_cpus=2)
            machines.wait_for_nodes()
        yield machines.address
        machines.shutdown()


@pytest.fixture(autouse=True)
def address(machines: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster that a run finds."""
    monkeypatch.setenv("RAY_ADDRESS", machines)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return machines


def test_ranks_are_spread_and_a_dead_one_is_heard_from_afar():
    group = open_ray(Worker, Placement(per_node=2, nodes=2, timeout=None))
    met = group.call("who")
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [rank for rank, _ in met] == [Rank(i, 4, local, node, "cpu") for i, (node, local) in enumerate(places)]
    assert len({member.node for member in group.members[:2]}) == 1
    assert len({member.node for member in group.members}) == 2
    assert group.call("all_reduce", 0.0) == [6.0] * 4
    pids = [pid for _, pid in met] + group.call("start_child")
    last = 3 if group.members[3].node != _own_node() else 0  # one that is not on the caller's machine
    with pytest.raises(WorkerLostError) as caught:
        group.call("die", last)
    assert str(caught.value).startswith(f"rank {last} (process {pids[last]} on ")
    assert "these are my last words" in str(caught.value)
    assert str(caught.value).count("in compute") == 3
    assert all(gone(pid) for pid in pids)


def test_the_cluster_is_there_for_the_next_run():
    for _ in range(2):
        group = open_ray(Worker, Placement(per_node=1, nodes=2))
        assert group.call("all_reduce", 0.0) == [1.0, 1.0]
        group.close()


def test_more_than_the_cluster_has_is_refused_with_what_it_has(address: str):
    with pytest.raises(UserError) as caught:
        open_ray(Worker, Placement(per_node=4, nodes=2))
    assert "trainer.n_gpus_per_node=4, trainer.nnodes=2: a run needs 2 machines with 4 CPUs each" in str(caught.value)
    assert f"the Ray cluster at {address} has 2: " in str(caught.value)
    assert str(caught.value).count("2 CPUs") == 2


def test_devices_that_others_use_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch):
    import ray

    monkeypatch.setattr(ray_cluster, "_RESERVE_SECONDS", 2.0)
    reserve = Cluster._reserve

    def after_somebody_else(self: Cluster) -> None:
        assert ray.util.placement_group([{"CPU": 2}]).wait(30)
        reserve(self)

    monkeypatch.setattr(Cluster, "_reserve", after_somebody_else)
    with pytest.raises(UserError, match=r"has enough CPUs, but others use them \(2 free\)"):
        open_ray(Worker, Placement(per_node=2, nodes=2))


def _own_node() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()
