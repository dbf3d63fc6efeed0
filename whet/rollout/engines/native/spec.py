"""The native engine as configs name it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from whet.errors import UserError
from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from whet.rollout.engine import Engine

# Whether keys and values of a sample can be kept depends on the device, which an open engine knows.
CAPABILITIES = partial(
    Capabilities,
    shares_weights=True,
    updates_in_flight=True,
    exact_log_probs=True,
    streams=True,
    images=True,
    partial=True,
    serves=True,
    pushes=True,
)


def _open(opening: Opening) -> Engine:
    from whet.rollout.engines.native.engine import NativeEngine

    rollout = opening.config.worker.rollout
    if opening.moving and rollout.replay_routing:
        raise UserError("worker.rollout.replay_routing=true is for one device; set it to false")
    if opening.moving and rollout.quantization:
        raise UserError(f"worker.rollout.quantization={rollout.quantization} is for one device; set it to null")
    if rollout.replay_routing:
        from whet.model.routing import replay_routing

        replay_routing(opening.policy)
    if rollout.quantize_learner:
        from whet.model.fp8 import round_alike

        round_alike(opening.policy)
    return NativeEngine(
        opening.policy,
        opening.tokenizer,
        opening.ends,
        opening.slots,
        rollout.max_num_batched_tokens,
        max_model_len=opening.longest,
        memory_share=rollout.gpu_memory_utilization,
        eager=rollout.enforce_eager or opening.moving,
        speculate=rollout.speculate,
        record_routing=rollout.replay_routing,
        fp8=rollout.quantization == "fp8",
        fp8_cache=rollout.kv_cache_dtype == "fp8",
    )


KEYS = frozenset({"exact", "speculate", "replay_routing", "quantization", "quantize_learner", "kv_cache_dtype"})
SPEC = EngineSpec(open=_open, capabilities=CAPABILITIES(), keys=KEYS)
