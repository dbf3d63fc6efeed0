"""The engine that a run samples with, opened as its config says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config import Config
from whet.distributed import Rank
from whet.rollout.engine import Engine
from whet.rollout.engines.hf import HFEngine
from whet.rollout.engines.native import NativeEngine
from whet.training.servers import is_server, open_server
from whet.training.vllm import open_vllm_engine


def default_slots(device: torch.device) -> int:
    """Samples decoded at once where `max_num_seqs` does not say."""
    return 512 if device.type == "cuda" else 64


def has_own_weights(config: Config) -> bool:
    """Whether the engine keeps a copy of the weights, which it is given after each update."""
    return config.worker.rollout.name not in ("native", "hf")


def engine_ranks(config: Config, ranks: int) -> range:
    """The ranks that have an engine: one for each copy of the model, and only the first where it is a server."""
    rollout = config.worker.rollout
    if is_server(config) or rollout.server_address is not None:
        return range(1)
    return range(0, ranks, rollout.tensor_parallel_size)


@contextmanager
def devices_shared(config: Config, rank: Rank) -> Iterator[None]:
    """Inside, processes that are started see the devices of all ranks that share an engine; every rank must enter."""
    name, size = "CUDA_VISIBLE_DEVICES", config.worker.rollout.tensor_parallel_size
    if len(engine_ranks(config, rank.world)) * size != rank.world or size == 1 or name not in os.environ:
        yield
        return
    own = os.environ[name]
    seen: list[str] = [""] * rank.world
    dist.all_gather_object(seen, own)
    first = rank.rank // size * size
    os.environ[name] = ",".join(seen[first : first + size])  # this process has chosen its own device long ago
    try:
        yield
    finally:
        os.environ[name] = own


def open_engine(
    config: Config,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    ends: frozenset[int],
    log: Path | None = None,
    device: torch.device | None = None,
    moving: bool = False,
) -> Engine:
    """The engine that `worker.rollout.name` names; `log` is for what its processes print.

    It samples on `device`, or on the model's. Parameters that are `moving` lie elsewhere in every rollout, so that no
    captured graph could point to them.
    """
    rollout = config.worker.rollout
    if rollout.name == "vllm":
        return open_vllm_engine(config, model, tokenizer, ends, log, device)
    if is_server(config):
        return open_server(config, model, tokenizer, ends)
    slots = rollout.max_num_seqs or default_slots(model.device)
    if rollout.name == "hf":
        return HFEngine(model, tokenizer, ends, slots)
    return NativeEngine(
        model,
        tokenizer,
        ends,
        slots,
        rollout.max_num_batched_tokens,
        max_model_len=rollout.max_model_len or config.data.max_prompt_length + config.data.max_response_length,
        memory_share=rollout.gpu_memory_utilization,
        eager=rollout.enforce_eager or moving,
    )
