"""What each rank does in tests of engines that several ranks share."""

from __future__ import annotations

import os

import torch.distributed as dist

from whet.config import load_config
from whet.distributed import Rank
from whet.training.engines import devices_shared

NAME = "CUDA_VISIBLE_DEVICES"


def seen(size: int) -> tuple[str, str]:
    """The devices that a process started here would see, inside and afterwards; ranks have devices 10, 11, ..."""
    rank, world = dist.get_rank(), dist.get_world_size()
    os.environ[NAME] = str(10 + rank)
    config = load_config(["worker.rollout.name=vllm", f"worker.rollout.tensor_parallel_size={size}"])
    with devices_shared(config, Rank(rank, world, rank, 0, "cuda:0")):
        inside = os.environ[NAME]
    return inside, os.environ[NAME]
