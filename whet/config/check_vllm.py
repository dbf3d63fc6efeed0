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
        return
    if rollout.exact:
        yield f"worker.rollout.exact=true: {name} computes in its own way; set it to false, or the engine to native"
    if rollout.server_address is not None and rollout.mode != "server":
        yield f"worker.rollout.server_address={rollout.server_address}: set worker.rollout.mode=server, or leave it out"
    if rollout.python is not None and (rollout.mode == "inline" or rollout.server_address is not None):
        where = "in this interpreter" if rollout.mode == "inline" else "where its server was started"
        yield f"worker.rollout.python={rollout.python}: {mode} runs vLLM {where}; leave it out"
