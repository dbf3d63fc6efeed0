"""What the models of a run are built from, and the models themselves, on one device or on ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config

if TYPE_CHECKING:
    from whet.distributed import Group, Rank
    from whet.learn.critic import Critic
    from whet.learn.learner import Learner
    from whet.learn.reference import Reference
    from whet.rollout.engine import Engine
    from whet.training.rank import RankWorker


@dataclass(frozen=True)
class RankPlan:
    """What a rank builds itself from; called with its place, it becomes the worker."""

    config: Config
    path: str
    tokenizer_path: str
    ends: frozenset[int]
    checkpoint: Checkpoint | None
    total_steps: int
    uses_reference: bool
    critic_path: str | None  # None where nothing needs values
    folder: Path  # the run's, for what engines print
    samples: bool = True  # whether the ranks that learn sample too

    def __call__(self, rank: Rank) -> RankWorker:
        """Build the worker, in the process it lives in."""
        from whet.training.rank import RankWorker  # runs on one device have none

        return RankWorker(self, rank)


@dataclass(frozen=True, slots=True)
class Models:
    """What holds weights, in this process or on the ranks of a group; the loop calls either alike."""

    engine: Engine
    learner: Learner
    critic: Critic | None
    reference: Reference | None
    group: Group | None = None  # the ranks that learn
