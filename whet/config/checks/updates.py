"""Checks of what updates the actor or the critic: mini- and micro-batches, memory for a sample, precision."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.schema import Config


def batch_problems(config: Config, part: str) -> Iterator[str]:
    """Yield a sentence for each size of the actor or the critic that does not divide what it is a part of."""
    data, worker, n = config.data, getattr(config.worker, part), config.worker.rollout.n
    yield from must_divide(
        f"worker.{part}.global_batch_size",
        worker.global_batch_size,
        "data.rollout_batch_size",
        data.rollout_batch_size,
    )
    if worker.dynamic_batching:
        return
    if worker.micro_batch_tokens is not None:
        yield (
            f"worker.{part}.micro_batch_tokens counts tokens, but worker.{part}.dynamic_batching=false counts samples"
        )
    yield from must_divide(
        f"worker.{part}.micro_batch_size_per_device_for_update",
        worker.micro_batch_size_per_device_for_update,
        f"worker.{part}.global_batch_size x worker.rollout.n",
        worker.global_batch_size * n,
    )
    yield from must_divide(
        f"worker.{part}.micro_batch_size_per_device_for_experience",
        worker.micro_batch_size_per_device_for_experience,
        "data.rollout_batch_size x worker.rollout.n",
        data.rollout_batch_size * n,
    )


def budget_problems(config: Config, part: str) -> Iterator[str]:
    """Yield a sentence if one sample may not fit into a micro-batch of the actor or the critic."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    tokens = getattr(config.worker, part).micro_batch_tokens
    if tokens is not None and tokens < longest:
        yield (
            f"worker.{part}.micro_batch_tokens={tokens} is less than one sample may need: "
            f"data.max_prompt_length + data.max_response_length = {longest}"
        )


def precision_problems(config: Config, part: str) -> Iterator[str]:
    """Yield a sentence where the optimizer of a part does not go with the dtype of its weights, or with shards."""
    worker = getattr(config.worker, part)
    if worker.optim.strategy == "adamw_bf16" and worker.fsdp.torch_dtype not in (None, "bf16", "bfloat16"):
        yield (
            f"worker.{part}.optim.strategy=adamw_bf16 trains bf16 weights, but worker.{part}.fsdp.torch_dtype="
            f"{worker.fsdp.torch_dtype}; set that to bf16 or the strategy to adamw"
        )
    if worker.optim.strategy == "muon" and worker.fsdp.torch_dtype not in (None, "fp32", "float32"):
        yield (
            f"worker.{part}.optim.strategy=muon trains fp32 weights, but worker.{part}.fsdp.torch_dtype="
            f"{worker.fsdp.torch_dtype}; set that to fp32 or the strategy to adamw"
        )
    devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
    if worker.optim.strategy in ("adamw_8bit", "muon") and devices > 1:
        yield (
            f"worker.{part}.optim.strategy={worker.optim.strategy} is for whole parameters, and the run has {devices} "
            "devices (trainer.nnodes, trainer.n_gpus_per_node), which shard them; set it to adamw"
        )


def must_divide(part_name: str, part: int, whole_name: str, whole: int) -> Iterator[str]:
    """Yield a sentence with the nearest sizes that fit if `part` does not divide `whole`."""
    if part < 1 or whole < 1 or whole % part == 0:
        return
    from whet.config.checks.devices import divisors

    below = max(size for size in divisors(whole) if size < part)
    above = min((size for size in divisors(whole) if size > part), default=None)
    fitting = f"{below} or {above}" if above else f"{below}"
    multiples = " or ".join(str(part * times) for times in (whole // part, whole // part + 1) if times)
    yield f"{part_name}={part} does not divide {whole_name}={whole}; set it to {fitting}, or the latter to {multiples}"
