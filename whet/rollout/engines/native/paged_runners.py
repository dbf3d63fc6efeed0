"""The runner of a model whose kernels a device has: over pages, with captured graphs on a GPU."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from whet.model.fused import decoder_of
from whet.rollout.engines.native.paged import PagedRunner
from whet.rollout.engines.native.storage import PageStorage


def paged_runner(
    model: PreTrainedModel,
    max_num_seqs: int,
    end_ids: frozenset[int],
    max_model_len: int | None,
    memory_share: float,
    eager: bool,
    speculate: bool,
    record_routing: bool,
    fp8_cache: bool,
) -> PagedRunner:
    """Return a runner that replays graphs on a GPU, and one that launches each kernel in triton's interpreter."""
    cache_dtype = torch.float8_e4m3fn if fp8_cache else None
    if model.device.type != "cuda":
        storage = PageStorage(model, cache_dtype)
        return PagedRunner(model, max_num_seqs, end_ids, max_model_len, storage, speculate, record_routing)
    from whet.model.routing import mixtures
    from whet.rollout.engines.native.graph import GraphRunner

    if decoder_of(model) is None and mixtures(model):
        eager = True  # a mixture's own modules may ask the host which experts have tokens: no graph can hold that
    sizes = (max_num_seqs, end_ids, max_model_len, memory_share)
    return GraphRunner(model, *sizes, eager, speculate, record_routing, cache_dtype)
