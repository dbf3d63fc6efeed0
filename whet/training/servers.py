"""Engines behind an address, as the config names them."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config import Config, resolve_path
from whet.config.check_server import SERVERS
from whet.errors import UserError
from whet.rollout.engine import Engine
from whet.rollout.engines.server import TOKEN, Client, CompletionsEngine, SGLangEngine, check_server

_REQUESTS = 256  # at once, where worker.rollout.max_num_seqs leaves it open
_DTYPES = {
    **dict.fromkeys(("bf16", "bfloat16"), torch.bfloat16),
    **dict.fromkeys(("fp16", "float16"), torch.float16),
    **dict.fromkeys(("fp32", "float32"), torch.float32),
}


def is_server(config: Config) -> bool:
    """Whether the engine is a server that somebody else started."""
    return config.worker.rollout.name in SERVERS


def check_engine_server(config: Config) -> None:
    """UserError unless the server that the config names is up, and its folder there, before anything is loaded."""
    rollout = config.worker.rollout
    if not is_server(config):
        return
    check_server(rollout.server_address or "", os.environ.get(TOKEN), rollout.name)
    folder = _folder(config)
    if rollout.name == "sglang" and folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"worker.rollout.server_folder={rollout.server_folder}: no folder here that can be written to")


def open_server(
    config: Config, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: frozenset[int]
) -> Engine:
    """The engine for the server at `worker.rollout.server_address`."""
    rollout = config.worker.rollout
    client = Client(rollout.server_address or "", os.environ.get(TOKEN), rollout.server_timeout)
    requests = rollout.max_num_seqs or _REQUESTS
    if rollout.name != "sglang":
        return CompletionsEngine(client, tokenizer, ends, rollout.name, requests)
    return SGLangEngine(
        client,
        tokenizer,
        ends,
        model.config,
        requests,
        _folder(config),
        _DTYPES[rollout.dtype] if rollout.dtype else model.dtype,
        rollout.free_cache_engine,
    )


def _folder(config: Config) -> Path | None:
    named = config.worker.rollout.server_folder
    return resolve_path(config, named).absolute() if named else None
