"""The plan that the models of a run are built from, and the models, in this process or on ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config

if TYPE_CHECKING:
    from whet.distributed import Rank
    from whet.learn.protocol import Critic, Learner, Reference
    from whet.rollout.engine import Engine
    from whet.training.rank import RankWorker


@dataclass(frozen=True)
class RankPlan:
    """Everything a rank is built from; called in the rank's process, it returns the worker."""

    config: Config
    path: str
    tokenizer_path: str
    ends: frozenset[int]
    checkpoint: Checkpoint | None
    total_steps: int
    uses_reference: bool
    critic_path: str | None  # None: nothing needs values
    folder: Path  # the run's, for what engines print
    samples: bool = True  # open an engine on the ranks that learn

    def __call__(self, rank: Rank) -> RankWorker:
        """Build the worker, in the process it lives in."""
        from whet.training.rank import RankWorker  # runs on one device have none

        return RankWorker(self, rank)


@dataclass(frozen=True, slots=True)
class Models:
    """Engine, learner, critic and reference, in this process or on the ranks of a group."""

    engine: Engine
    learner: Learner
    critic: Critic | None
    reference: Reference | None
    configure: Callable[[Config], None]  # continue under the config of another stage
