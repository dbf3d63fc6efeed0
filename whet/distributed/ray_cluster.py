"""Ray: the cluster that runs already or one of our own, the devices reserved in it, and groups of workers on them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from whet.distributed.diagnostics import Member
from whet.distributed.group import Factory, Rank
from whet.distributed.host import Host, Introduction, Setup
from whet.distributed.placement import RESOURCES, Placement, asked, check_processes, check_room, choose_device
from whet.distributed.ray_group import RayGroup
from whet.distributed.ray_start import connect
from whet.distributed.watch import Watch
from whet.errors import UserError, WorkerLostError

_RESERVE_SECONDS = 60.0
_START_SECONDS = 120.0
# Variables that workers on other machines need as the caller has them.
_PASSED = ("WHET_", "HF_", "TRANSFORMERS_", "TORCH", "NCCL_", "GLOO_", "TOKENIZERS_", "TRITON_", "OMP_", "MKL_")


class Cluster:
    """The devices of a run, reserved until it is closed. Ray is stopped afterwards if it was started here."""

    def __init__(self, placement: Placement, folder: Path | None = None) -> None:
        self.placement = placement
        self._groups: list[RayGroup] = []
        self._apart: list[RayGroup] = []  # which no other group depends on
        self._reserved: Any = None
        self._closed = False
        self._started = connect(placement)
        self._own_folder = folder is None
        self._folder = str(folder or tempfile.mkdtemp(prefix="whet_ranks_"))
        try:
            self._reserve()
        except BaseException:
            self.close()
            raise

    def open(self, factory: Factory, pool: str | None = None) -> RayGroup:
        """One worker for each device of a pool (all devices without one), joined by torch.distributed."""
        devices = self.placement.pools[pool] if pool else range(self.placement.size)
        return self._open(factory, devices, pool, lambda: None, self._groups)

    def open_only(self, factory: Factory) -> RayGroup:
        """A group of all devices that closes the cluster with itself."""
        return self._open(factory, range(self.placement.size), None, self.close, self._groups)

    def open_apart(self, factory: Factory, devices: Sequence[int], name: str) -> RayGroup:
        """A group of some devices whose end ends no other group; may be called from any thread."""
        return self._open(factory, devices, name, lambda: None, ())

    def close(self) -> None:
        """End every group, give the devices back, and stop Ray if it is ours; a second time does nothing."""
        import ray

        if self._closed:
            return
        self._closed = True
        try:
            for group in [*self._groups, *self._apart]:
                group.close()
            if self._reserved is not None:
                ray.util.remove_placement_group(self._reserved)
        finally:
            ray.shutdown()  # stops the processes that ray.init started; from another cluster it only disconnects
            if self._own_folder and not any(group.failed for group in [*self._groups, *self._apart]):
                shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # Ctrl-C included: nobody waits for workers then
            for group in [*self._groups, *self._apart]:
                group.kill()
        self.close()

    def _reserve(self) -> None:
        import ray

        placement, nodes = self.placement, [node for node in ray.nodes() if node["Alive"]]
        where = "this machine" if self._started else f"the Ray cluster at {ray.get_runtime_context().gcs_address}"
        self.device = choose_device(placement, nodes)
        check_room(placement, self.device, nodes, where)
        if self._started:
            check_processes(placement, self.device)
        resource = RESOURCES[self.device]
        bundles = [{resource: float(placement.per_node)} for _ in range(placement.nodes)]
        self._reserved = ray.util.placement_group(bundles, strategy="STRICT_SPREAD" if placement.nodes > 1 else "PACK")
        if not self._reserved.wait(_RESERVE_SECONDS):
            free = int(ray.available_resources().get(resource, 0))
            raise UserError(
                f"{asked(placement)}: {where} has enough "
                f"{resource}s, but others use them ({free} free); wait for them, or ask for fewer"
            )

    def _open(
        self,
        factory: Factory,
        devices: Sequence[int],
        name: str | None,
        on_close: Callable[[], None],
        together: Sequence[RayGroup],
    ) -> RayGroup:
        """`together` are the groups of which one cannot go on without the others."""
        import ray
        from ray import cloudpickle

        folder = os.path.join(self._folder, name.replace(" ", "_")) if name else self._folder
        ranks = _ranks(self.placement, devices, "cpu" if self.device == "cpu" else "cuda:0")
        watch = Watch(ray.util.get_node_ip_address(), len(ranks))
        actors = [self._actor(device) for device in devices]
        try:
            met = self._introduced(actors, ranks, watch, folder)
        except BaseException:
            watch.close()
            raise
        members = [Member(rank, each.leader, each.node, each.hostname) for rank, each in enumerate(met)]
        timeout = self.placement.timeout
        group = RayGroup(actors, members, watch, folder, timeout, on_close, name, together)
        (self._groups if together is self._groups else self._apart).append(group)
        try:
            store = ray.get(actors[0].listen.remote(met[0].address), timeout=_START_SECONDS)
            if store.failure:
                raise store.failure.error(0)
            group.begin("join", *((met[0].address, store.value, each.address) for each in met)).wait()
            group.begin("build", *[(cloudpickle.dumps(factory),)] * group.size).wait()
        except ray.exceptions.RayActorError as error:
            group.kill()
            raise _died_early(error) from error
        except BaseException:
            group.kill()
            raise
        return group

    def _actor(self, device: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        node = self.placement.place(device)[0]
        on_node = PlacementGroupSchedulingStrategy(self._reserved, placement_group_bundle_index=node)
        cost = {"num_gpus": 1, "num_cpus": 0} if self.device == "cuda" else {"num_cpus": 1}
        options = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": on_node, **cost}
        return ray.remote(Host).options(**options).remote()

    def _introduced(
        self, actors: Sequence[Any], ranks: Sequence[Rank], watch: Watch, folder: str
    ) -> list[Introduction]:
        """Start the processes and give each its environment."""
        import ray

        environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
        path = tuple(entry for entry in sys.path if entry)
        calls = []
        for actor, rank in zip(actors, ranks):
            ranks_here = sum(other.node == rank.node for other in ranks)
            setup = Setup(rank, ranks_here, watch.address, watch.secret, folder, os.getcwd(), path, environment)
            calls.append(actor.prepare.remote(setup))
        try:
            outcomes = ray.get(calls, timeout=_START_SECONDS)
        except ray.exceptions.RayActorError as error:
            raise _died_early(error) from error
        except ray.exceptions.RayError as error:
            raise UserError(
                f"{asked(self.placement)}: Ray could not start {len(ranks)} worker processes: {error}"
            ) from error
        for rank, outcome in zip(ranks, outcomes):
            if outcome.failure:
                raise outcome.failure.error(rank.rank)
        return [outcome.value for outcome in outcomes]


def open_ray(factory: Factory, placement: Placement, folder: Path | None = None) -> RayGroup:
    """One worker for each device of a cluster that is opened for them alone and closed with the group."""
    cluster = Cluster(placement, folder)
    try:
        return cluster.open_only(factory)
    except BaseException:
        cluster.close()
        raise


def _died_early(error: Exception) -> WorkerLostError:
    return WorkerLostError([], f"a worker died while it was started: {str(error).splitlines()[0]}")


def _ranks(placement: Placement, devices: Sequence[int], device: str) -> list[Rank]:
    places = [placement.place(each) for each in devices]
    return [
        Rank(rank, len(places), sum(node == before for before, _ in places[:rank]), node, device)
        for rank, (node, _) in enumerate(places)
    ]
