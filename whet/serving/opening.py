"""Build a service from a config: cheap checks first, then weights are loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.chat.calls.hermes import BEGIN, END
from whet.chat.calls.registry import FORMATS, format_name
from whet.config import Config, local_name, resolve_path
from whet.data.chat import template_text
from whet.errors import UserError
from whet.model.load import end_ids, load_model_config, load_tokenizer
from whet.model.processor import load_processor
from whet.rollout.spec import check_engine_model, default_slots, engine_can
from whet.serving.backend import Backend, Loading, LocalBackend
from whet.serving.gate import Gate
from whet.serving.metrics import Metrics
from whet.serving.naming import model_folder, served_name
from whet.serving.prompts import PromptMaker
from whet.serving.service import Service
from whet.serving.text import Vocabulary
from whet.training.device import Placement, choose_placement

_CACHE_SHARE = 0.5  # of the free memory of a host, for keys and values


def open_service(config: Config, token: str, say: Callable[[str], None]) -> Service:
    """Load the model and open its engine."""
    placement = choose_placement(config)
    chosen = config.worker.actor.model
    given = local_name(config, chosen.model_path or "")
    folder = model_folder(Path(given)) if Path(given).is_dir() else None
    path = str(folder) if folder is not None else resolve_model(given, say)
    own = load_model_config(path, chosen.trust_remote_code, chosen.override_config)
    spelling = local_name(config, chosen.tokenizer_path) if chosen.tokenizer_path else path
    tokenizer = load_tokenizer(spelling, chosen.trust_remote_code)
    ends = end_ids(path, tokenizer)
    processor = load_processor(path, own, tokenizer, chosen.trust_remote_code)
    template = template_text(config.data.override_chat_template, lambda name: str(resolve_path(config, name)))
    own_template = tokenizer.chat_template or (processor.chat_template if processor is not None else None)
    used = template or own_template
    form = FORMATS.find(format_name(config.worker.rollout.tool_format, used if isinstance(used, str) else None))
    config = with_sizes(config, own, placement)
    rollout = config.worker.rollout
    assert rollout.max_model_len is not None
    assert rollout.max_num_seqs is not None
    check_engine_model(config, own)
    backend = open_backend(Loading(config, path, spelling, ends, placement), tokenizer)
    say(f"model: {path}, {backend.parameters:,} parameters, {placement}, version {backend.version}")
    gate = Gate(config.serve.max_concurrent or rollout.max_num_seqs, config.serve.max_queued)
    vocabulary = own.get_text_config().vocab_size
    return Service(
        config=config,
        name=config.serve.model_name or served_name(given),
        path=path,
        backend=backend,
        maker=PromptMaker(tokenizer, processor, config, template, rollout.max_model_len, vocabulary, ends, form),
        vocabulary=Vocabulary(tokenizer, shown=(BEGIN, END)),
        gate=gate,
        metrics=Metrics(
            {
                "whet_requests_running": lambda: gate.running,
                "whet_requests_waiting": lambda: gate.waiting,
                "whet_weights_version": lambda: backend.version,
            }
        ),
        token=token,
        slots=rollout.max_num_seqs,
        format=form,
        sees=processor is not None and backend.sees,
        started=int(time.time()),
    )


def open_backend(loading: Loading, tokenizer: PreTrainedTokenizerBase) -> Backend:
    """Load the model and open its engine: in a process of its own if `serve.engine_process` says so.

    Engines that keep a copy of the weights have such a process in any case.
    """
    apart, can = loading.config.serve.engine_process, engine_can(loading.config)
    if apart is None:
        apart = loading.placement.device.type == "cuda"
    if apart and can.pushes:
        from whet.serving.process.backend import ProcessBackend

        return ProcessBackend(loading)
    return LocalBackend(loading, tokenizer)


def with_sizes(config: Config, model: PretrainedConfig, placement: Placement) -> Config:
    """The config with the longest sequence and the number of slots filled in, as the model and memory allow."""
    rollout, text = config.worker.rollout, model.get_text_config()
    longest = getattr(text, "max_position_embeddings", None)
    length = rollout.max_model_len or longest or config.data.max_prompt_length + config.data.max_response_length
    if longest is not None and length > longest:
        raise UserError(f"worker.rollout.max_model_len={length}: the model has {longest} positions; set it to that")
    slots = rollout.max_num_seqs
    if slots is None:
        slots = default_slots(placement.device)
        if placement.device.type == "cpu":
            slots = max(
                1, min(slots, int(_CACHE_SHARE * free_memory() / (length * token_bytes(model, placement.dtype))))
            )
    worker = replace(config.worker, rollout=replace(rollout, max_model_len=length, max_num_seqs=slots))
    return replace(config, worker=worker)


def token_bytes(model: PretrainedConfig, dtype: torch.dtype) -> int:
    """Memory for the keys and values of one token."""
    text = model.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * head_dim * dtype.itemsize


def free_memory() -> int:
    """Bytes of the host that a process can have, or 8 GB where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 8 * 10**9
