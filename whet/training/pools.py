"""The ranks of a run on several devices: all sample and learn in turn, or some sample for others that learn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whet.config import Config
from whet.distributed import Cluster, Group, Placement
from whet.rollout.engine import Engine
from whet.tracking.console import Console
from whet.training.models import Models, RankPlan
from whet.training.remote import remote_critic, remote_learner, remote_reference
from whet.training.remote_engine import PoolEngine, RemoteEngine
from whet.training.sampler import SamplerPlan

if TYPE_CHECKING:
    from whet.training.replicas.engine import ReplicaEngine


def open_remote_models(plan: RankPlan, folder: Path, console: Console, stack: ExitStack) -> Models:
    """The models of a run on ranks, one for each device; these end with the stack, and a Ray that was started here."""
    placement = Placement.of(plan.config.trainer)
    resize: Callable[[int], None] | None = None
    cluster = stack.enter_context(Cluster(placement, folder))
    if placement.rollout is None:
        learn = cluster.open(plan)
        engine: Engine = RemoteEngine(plan.config, learn)
        ranks = f"{learn.size} ranks"
    elif plan.config.trainer.max_staleness:
        learn = cluster.open(replace(plan, samples=False), "learn")
        engine = replicas = _open_replicas(plan, cluster, learn, console.warn)
        stack.callback(engine.close)
        resize = replicas.resize
        ranks = f"{learn.size} ranks that learn and {replicas.most} replicas of the engine that sample"
    else:
        learn = cluster.open(replace(plan, samples=False), "learn")
        rollout = cluster.open(SamplerPlan(plan), "rollout")
        engine = PoolEngine(plan.config, rollout, learn)
        ranks = f"{learn.size} ranks that learn and {rollout.size} that sample"
    console.note(f"{ranks} on {placement.nodes} machine{'s' if placement.nodes > 1 else ''}, {cluster.device}")
    return Models(
        engine,
        remote_learner(learn),
        remote_critic(learn) if plan.critic_path is not None else None,
        remote_reference(learn) if plan.uses_reference else None,
        partial(_configure, learn),
        resize=resize,
    )


def _open_replicas(plan: RankPlan, cluster: Cluster, learn: Group, warn: Callable[[str], None]) -> ReplicaEngine:
    """Return an engine of replicas, each on the devices that one copy of the model takes."""
    from whet.training.replicas.engine import ReplicaEngine
    from whet.training.replicas.worker import ReplicaPlan

    devices, each = cluster.placement.pools["rollout"], plan.config.worker.rollout.tensor_parallel_size
    parts = [devices[first : first + each] for first in range(0, len(devices), each)]

    def open_one(number: int) -> Group:
        return cluster.open_apart(ReplicaPlan(plan), parts[number], f"replica {number}")

    return ReplicaEngine(plan.config, learn, open_one, len(parts), warn)


def _configure(ranks: Group, config: Config) -> None:
    ranks.call("configure", config)
