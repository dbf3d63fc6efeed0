"""vLLM as the config names it: found before anything is loaded, started once the model is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.config import Config
from whet.errors import UserError
from whet.model.modality import has_vision, placeholder_ids
from whet.rollout.engine import Engine
from whet.rollout.engines.server.check import check_server
from whet.rollout.engines.server.client import Client, client_of, server_token
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.server import OwnServerEngine, VLLMServerEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.rollout.spec import Opening

_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}  # as vLLM writes them


def check_vllm(config: Config, model: PretrainedConfig) -> None:
    """UserError unless vLLM can be found where the config says, and the model can be split as it says."""
    rollout = config.worker.rollout
    size, heads = rollout.tensor_parallel_size, model.get_text_config().num_attention_heads
    if heads % size:
        fitting = ", ".join(str(each) for each in range(1, heads + 1) if heads % each == 0)
        raise UserError(
            f"worker.rollout.tensor_parallel_size={size}: the model has {heads} attention heads, which it must divide: "
            f"set one of {fitting}"
        )
    alone = config.trainer.n_gpus_per_node * config.trainer.nnodes == 1  # else its devices are those of its ranks
    if alone and torch.cuda.is_available() and size > torch.cuda.device_count():
        raise UserError(
            f"worker.rollout.tensor_parallel_size={size}: there are {torch.cuda.device_count()} GPUs here; set it to "
            "that or less"
        )
    if rollout.server_address is not None:
        check_server(rollout.server_address, server_token())
    else:
        settings = _settings(config, torch.float32, on_cpu=True)
        replace(settings, processor_from=model.name_or_path if has_vision(model) else None).check()


def open_for(opening: Opening) -> Engine:
    """Start vLLM, or connect to its server; it samples once it was given weights."""
    config, model = opening.config, opening.policy
    client = client_of(config) if config.worker.rollout.server_address is not None else None
    device = opening.device or model.device
    settings = _settings(config, model.dtype, on_cpu=device.type == "cpu")
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    settings = replace(
        settings,
        device_memory=0 if settings.on_cpu else torch.cuda.get_device_properties(device).total_memory,
        model_bytes=sum(each.numel() for each in model.parameters()) * (4 if settings.dtype == "float32" else 2),
        processor_from=model.name_or_path if has_vision(model.config) else None,
        weights_at_hand=not several and not config.worker.actor.offload.offload_params,  # those wait elsewhere
    )
    return open_vllm(settings, model.config, opening.tokenizer, opening.ends, client, opening.log)


def open_vllm(
    settings: Settings,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    end_ids: frozenset[int],
    client: Client | None = None,
    log: Path | None = None,
) -> Engine:
    """The engine of the mode that the settings name; `client` speaks to a server that is up already."""
    if settings.mode != "server":
        return VLLMEngine(settings, config, tokenizer, end_ids, log)
    server = (
        OwnServerEngine(settings, config, tokenizer, end_ids, log)
        if client is None
        else VLLMServerEngine(client, tokenizer, end_ids, settings.max_num_seqs)
    )
    server.never = tuple(placeholder_ids(config))
    return server


def _settings(config: Config, learner: torch.dtype, on_cpu: bool) -> Settings:
    rollout = config.worker.rollout
    dtype = rollout.dtype or str(learner).removeprefix("torch.")
    return Settings(
        mode=rollout.mode,
        python=rollout.python,
        dtype=_NAMES.get(dtype, dtype),
        max_model_len=rollout.max_model_len or config.data.max_prompt_length + config.data.max_response_length,
        max_num_seqs=rollout.max_num_seqs or (64 if on_cpu else 512),
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        tensor_parallel_size=rollout.tensor_parallel_size,
        enforce_eager=rollout.enforce_eager,
        enable_prefix_caching=rollout.enable_prefix_caching,
        enable_chunked_prefill=rollout.enable_chunked_prefill,
        disable_log_stats=rollout.disable_log_stats,
        trust_remote_code=config.worker.actor.model.trust_remote_code,
        on_cpu=on_cpu,
        replicas=rollout.replicas,
        limit_images=rollout.limit_images,
    )
