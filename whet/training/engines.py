"""Ranks of a run that have an engine, and the devices that one engine shares with other ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from whet.config import Config
from whet.distributed import Rank
from whet.rollout.spec import engine_can
from whet.system import sealed


def engine_ranks(config: Config, ranks: int) -> range:
    """The ranks that have an engine: one for each copy of the model, and only the first where it is a server."""
    return range(1) if engine_can(config).external else range(0, ranks, config.worker.rollout.tensor_parallel_size)


@contextmanager
def devices_shared(config: Config, rank: Rank) -> Iterator[None]:
    """Inside, processes that are started see the devices of all ranks that share an engine; every rank must enter."""
    name, size = "CUDA_VISIBLE_DEVICES", config.worker.rollout.tensor_parallel_size
    if len(engine_ranks(config, rank.world)) * size != rank.world or size == 1 or name not in os.environ:
        yield
        return
    own = os.environ[name]
    seen = sealed.all_gather(own)
    first = rank.rank // size * size
    os.environ[name] = ",".join(seen[first : first + size])  # this process has chosen its own device long ago
    try:
        yield
    finally:
        os.environ[name] = own
