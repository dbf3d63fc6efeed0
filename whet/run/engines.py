"""The engine that a run samples with, opened as its config says."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config import Config
from whet.rollout.engine import Engine
from whet.rollout.hf import HFEngine
from whet.rollout.native import NativeEngine
from whet.run.servers import is_server, open_server
from whet.run.vllm import open_vllm_engine


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


def open_engine(
    config: Config,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    ends: frozenset[int],
    log: Path | None = None,
    moving: bool = False,
) -> Engine:
    """The engine that `worker.rollout.name` names; `log` is for what its processes print.

    `moving` parameters lie elsewhere in every rollout, so that no captured graph could point to them.
    """
    rollout = config.worker.rollout
    if rollout.name == "vllm":
        return open_vllm_engine(config, model, tokenizer, ends, log)
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
