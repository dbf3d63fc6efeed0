"""Supervised learning on several devices: the ranks of a run of `whet train`, without a sampler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from whet.distributed import Cluster, Placement, TorchrunCluster
from whet.learn.protocol import Learner
from whet.training.models import RankPlan
from whet.training.remote import remote_learner


def learner_on_ranks(
    plan: RankPlan, torchrun: TorchrunCluster | None, folder: Path, say: Callable[[str], None], stack: ExitStack
) -> Learner:
    """Open one rank for each device: torchrun's processes, or Ray's, which end with the stack."""
    placement = Placement.of(plan.config.trainer)
    cluster = torchrun or stack.enter_context(Cluster(placement, folder))
    group = cluster.open(plan)
    say(f"{group.size} ranks on {placement.nodes} machine{'s' if placement.nodes > 1 else ''}, {cluster.device}")
    return remote_learner(group)
