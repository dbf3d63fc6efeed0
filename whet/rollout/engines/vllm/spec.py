"""vLLM as configs name it: found before anything is loaded, started once the model is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whet.config.schema import Config
from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from whet.rollout.engine import Engine

IN_PROCESS = Capabilities(streams=True, images=True, serves=True)  # a process of its own, or this one
OWN_SERVER = Capabilities(serves=True)
EXTERNAL = Capabilities(external=True)


def _capabilities(config: Config) -> Capabilities:
    rollout = config.worker.rollout
    if rollout.mode != "server":
        return IN_PROCESS
    return OWN_SERVER if rollout.server_address is None else EXTERNAL


def _problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each key that does not go with where vLLM runs."""
    rollout = config.worker.rollout
    name, mode = f"worker.rollout.name={rollout.name}", f"worker.rollout.mode={rollout.mode}"
    if rollout.replicas > 1 and (rollout.mode != "process" or rollout.tensor_parallel_size > 1):
        yield (
            f"worker.rollout.replicas={rollout.replicas}: several vLLMs share a device in worker.rollout.mode=process "
            "and with tensor_parallel_size=1 only; set it to 1, or those"
        )
    filters = rollout.top_p < 1 or rollout.top_k > 0 or rollout.min_p > 0
    if filters and (config.algorithm.rollout_correction.active or config.worker.actor.recompute_old_log_probs is False):
        yield (
            f"{name}: with top_p, top_k, min_p vLLM has log-probs among the tokens that are left, not the policy's; "
            "leave those out, or rollout_correction and worker.actor.recompute_old_log_probs=false"
        )
    if rollout.server_address is not None and rollout.mode != "server":
        yield f"worker.rollout.server_address={rollout.server_address}: set worker.rollout.mode=server, or leave it out"
    if rollout.python is not None and (rollout.mode == "inline" or rollout.server_address is not None):
        where = "in this interpreter" if rollout.mode == "inline" else "where its server was started"
        yield f"worker.rollout.python={rollout.python}: {mode} runs vLLM {where}; leave it out"


def _check_model(config: Config, model: PretrainedConfig) -> None:
    from whet.rollout.engines.vllm.opening import check_vllm

    check_vllm(config, model)


def _open(opening: Opening) -> Engine:
    from whet.rollout.engines.vllm.opening import open_for

    return open_for(opening)


SPEC = EngineSpec(
    open=_open,
    capabilities=_capabilities,
    keys=frozenset({"mode", "python", "server_address", "tensor_parallel_size", "replicas"}),
    problems=_problems,
    check_model=_check_model,
)
