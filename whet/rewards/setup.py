"""Settings that travel to every worker of a pool when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.rewards.function import RewardSource


@dataclass(frozen=True, slots=True)
class Part:
    """One of several rewards: its name among the scores, its weight, its source and its options."""

    name: str
    weight: float
    source: RewardSource
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Settings that every worker of a pool is started with."""

    source: RewardSource
    declared: str | None  # worker.reward.reward_type
    options: dict[str, Any]  # worker.reward.reward_function_kwargs
    output: Path | None = None  # where the function's prints go; None drops them
    sandbox: Mapping[str, Any] = field(default_factory=dict)  # sandbox.*, for programs that the function runs
    parts: tuple[Part, ...] = ()  # in place of the source: worker.reward.combine
    memory_limit_mb: int | None = None  # of each process; None is no limit
