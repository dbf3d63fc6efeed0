"""What vLLM as an engine needs of the config."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.schema import Config


def vllm_problems(config: Config) -> Iterator[str]:
    """A sentence for each key that does not go with where vLLM runs, or with an engine that is not vLLM."""
    rollout = config.worker.rollout
    name, mode = f"worker.rollout.name={rollout.name}", f"worker.rollout.mode={rollout.mode}"
    if rollout.name != "vllm":
        if rollout.python is not None:
            yield f"worker.rollout.python={rollout.python} is for vllm, but {name}; leave it out"
        if rollout.mode != "process":
            yield f"{mode} is for vllm, but {name}; leave it out"
        if rollout.tensor_parallel_size > 1:
            size = f"worker.rollout.tensor_parallel_size={rollout.tensor_parallel_size}"
            yield f"{size}: {name} is not split over devices by this key; set it to 1, or the engine to vllm"
        if rollout.replicas > 1:
            yield f"worker.rollout.replicas={rollout.replicas} is for vllm, but {name}; set it to 1"
        return
    if rollout.replicas > 1 and (rollout.mode != "process" or rollout.tensor_parallel_size > 1):
        yield (
            f"worker.rollout.replicas={rollout.replicas}: several vLLMs share a device in worker.rollout.mode=process "
            "and with tensor_parallel_size=1 only; set it to 1, or those"
        )
    if rollout.exact:
        yield f"worker.rollout.exact=true: {name} computes in its own way; set it to false, or the engine to native"
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
