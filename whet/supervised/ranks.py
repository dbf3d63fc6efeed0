"""Supervised learning on several devices: the ranks of a run of `whet train`, without a sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from whet.distributed import Cluster, Placement, Rank, TorchrunCluster
from whet.learn.learner import Learner, MakeLoss
from whet.learn.updates import Progress
from whet.supervised.likelihood import NegativeLogLikelihood
from whet.training.plan import RankPlan
from whet.training.rank import RankWorker
from whet.training.remote import RemoteLearner
from whet.types import Sample

NO_VERSION = -1  # no sampler wrote demonstrations: there are no log-probs to compare with


@dataclass(frozen=True)
class SftPlan(RankPlan):
    """Plan that a rank of supervised learning is built from."""

    def __call__(self, rank: Rank) -> SftWorker:
        """Build the worker, in the process it lives in."""
        return SftWorker(self, rank)


class SftWorker(RankWorker):
    """A rank's shard of the model and its optimizer."""

    def learn(self, samples: Sequence[Sample], loss: NegativeLogLikelihood, step: int) -> dict[str, float]:
        """One update on all samples; its metrics."""
        return self._learner.update(samples, loss, step, len(samples), None, NO_VERSION)


class RanksLearner(RemoteLearner):
    """The learner of all ranks, as the loop sees it."""

    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeLoss,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        version: int | None = None,
    ) -> dict[str, float]:
        """One update; each rank computes its share of the samples."""
        metrics = self._group.call("learn", list(samples), make_loss, step)[0]
        if progress is not None:
            progress(len(samples))
        return cast(dict[str, float], metrics)


def learner_on_ranks(
    plan: SftPlan, torchrun: TorchrunCluster | None, folder: Path, say: Callable[[str], None], stack: ExitStack
) -> Learner:
    """One rank for each device: torchrun's processes, or Ray's, which end with the stack."""
    placement = Placement.of(plan.config.trainer)
    cluster = torchrun or stack.enter_context(Cluster(placement, folder))
    group = cluster.open(plan)
    say(f"{group.size} ranks on {placement.nodes} machine{'s' if placement.nodes > 1 else ''}, {cluster.device}")
    return cast(Learner, RanksLearner(group))
