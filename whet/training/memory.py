"""Plan of a run's GPU memory: what its models hold, and how many tokens of a micro-batch fit beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig, PreTrainedModel

from whet.algos import needs_of
from whet.config import Config, local_name
from whet.config.schema.model import ModelConfig
from whet.errors import UserError
from whet.learn.memory import (
    GRADIENT_BYTES,
    Demand,
    Device,
    TokenBytes,
    head_bytes,
    model_bytes,
    plan,
    token_bytes,
    update_work,
)
from whet.learn.partition import Budget
from whet.model.fused import decoder_of
from whet.model.load import count_parameters
from whet.rollout.engine import kept_cache
from whet.training.device import Placement, choose_placement, is_distributed
from whet.training.experience import needs_reference

DtypeOf = Callable[[str], torch.dtype]  # of "actor" or "critic"
_WORTH = 0.95  # of an update's work, below which it pays to move the reference in every step


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Properties of a model that its memory depends on; known before any weight is loaded."""

    config: PretrainedConfig
    dtype: torch.dtype
    parameters: int
    trained: int
    fused: bool  # run by fused kernels, not by its own modules

    @staticmethod
    def of(model: PreTrainedModel) -> ModelSize:
        """Read the size of a loaded model."""
        own, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad >= only) for only in (False, True))
        return ModelSize(model.config, model.dtype, own, trained, decoder_of(model) is not None)


def planned_budget(config: Config, part: str, model: PreTrainedModel) -> Budget:
    """Return what a model's GPU has room for."""
    return budget_on(*_on_its_gpu(config, part, model))


def reference_planned_to_wait(config: Config, policy: PreTrainedModel) -> bool:
    """Return what `reference_waits` says of a policy on its GPU."""
    return reference_waits(*_on_its_gpu(config, "actor", policy))


def _on_its_gpu(config: Config, part: str, model: PreTrainedModel) -> tuple[int, Config, str, ModelSize, DtypeOf, int]:
    total = torch.cuda.get_device_properties(model.device).total_memory
    cache = kept_cache(total, _policy_bytes(config, part, model))
    return total, config, part, ModelSize.of(model), lambda other: choose_placement(config, other).dtype, cache


def budget_on(total: int, config: Config, part: str, size: ModelSize, dtype_of: DtypeOf, cache: int) -> Budget:
    """Return what a GPU of `total` bytes has room for beside the models of a run and a cache that stays."""
    in_host = reference_waits(total, config, part, size, dtype_of, cache)
    return plan(_device(total, config, part, size, dtype_of, cache, in_host), _demand(config, part, size))


def reference_waits(total: int, config: Config, part: str, size: ModelSize, dtype_of: DtypeOf, cache: int) -> bool:
    """Return True if the reference is in host memory while others use their GPU.

    Without a word of `worker.ref.offload.offload_params` it waits where updates are planned to be faster by more than a
    twentieth with its memory, or do not fit beside it; never where it has company (ranks, a critic), whose plans would
    have to agree.
    """
    asked = reference_may_wait(config)
    if asked is not None:
        return asked
    if is_distributed(config) or "values" in needs_of(config.algorithm.adv_estimator):
        return False
    demand = _demand(config, part, size)
    here, away = (
        update_work(_device(total, config, part, size, dtype_of, cache, in_host), demand) for in_host in (False, True)
    )
    return here == math.inf or away < _WORTH * here


def reference_may_wait(config: Config) -> bool | None:
    """Return whether the config has the reference wait in host memory; None leaves it to the plan."""
    ref, algorithm = config.worker.ref, config.algorithm
    if not needs_reference(algorithm) or config.worker.actor.model.lora.rank:
        return False  # below adapters it is the policy itself
    if algorithm.kl_penalty == "full" and algorithm.use_kl_loss:
        return False  # it is asked in every pass of an update
    if ref.fsdp.enable_cpu_offload and not is_distributed(config):
        return True
    return ref.offload.offload_params


def _demand(config: Config, part: str, size: ModelSize) -> Demand:
    worker = getattr(config.worker, part)
    offloaded = worker.model.offloads_activations  # only what a recomputed layer keeps can be
    longest = config.data.max_prompt_length + config.data.max_response_length
    by_samples = worker.micro_batch_size_per_device_for_update * longest
    return Demand(
        size.parameters,
        activation_bytes(size, worker.model, offloaded),
        longest=longest,
        needed=(worker.micro_batch_tokens or longest) if worker.dynamic_batching else by_samples,
        recompute=True if offloaded else worker.model.enable_gradient_checkpointing,
        shared=worker.ulysses_size,
    )


def _device(
    total: int, config: Config, part: str, size: ModelSize, dtype_of: DtypeOf, cache: int, in_host: bool
) -> Device:
    held, reference = cache + held_by(config, part, size, dtype_of), reference_bytes(config, part, size, dtype_of)
    # A reference that waits is back for its own passes, when no gradients are held.
    forward = held + reference - GRADIENT_BYTES * size.trained
    return Device(total, held + (0 if in_host else reference), forward)


def activation_bytes(size: ModelSize, model: ModelConfig, offloaded: bool) -> TokenBytes:
    """Return the bytes of one token of a model that is trained as its section of the config says."""
    tower = not model.freeze_vision_tower
    return token_bytes(size.config, size.dtype, fused=size.fused, tower_trained=tower, offloaded=offloaded)


def check_memory(config: Config, path: str, placement: Placement, adapters: int | None) -> None:
    """Raise a `UserError` before anything is loaded if the models of a run do not fit on their GPU; `path` is local.

    `adapters` is the number of trained parameters where only adapters are trained. Counted are weights, gradients and
    optimizer states, none of which can be left out; a model whose size is not known passes.
    """
    parameters = count_parameters(path) if placement.device.type == "cuda" else None
    if parameters is None:
        return
    trained, strategy = parameters if adapters is None else adapters, config.worker.actor.optim.strategy
    held = model_bytes(parameters - (trained if adapters is None else 0), placement.dtype, trained=False)
    held += model_bytes(trained, placement.dtype, trained=True, strategy=strategy)
    if needs_reference(config.algorithm) and adapters is None and reference_may_wait(config) is False:
        held += model_bytes(parameters, placement.dtype, trained=False)
    total = torch.cuda.get_device_properties(placement.device).total_memory
    if held > total:
        advice = "" if adapters is not None else "train adapters (worker.actor.model.lora.rank=16), "
        advice += (
            "" if strategy == "adamw_8bit" else "keep moments in 8 bits (worker.actor.optim.strategy=adamw_8bit), "
        )
        raise UserError(
            f"worker.actor.model.model_path: {path} has {parameters:,} parameters; weights, gradients and optimizer "
            f"states take {held / 2**30:.0f} GiB, and the GPU has {total / 2**30:.0f}: {advice}use a smaller model or "
            "shard it over more devices (trainer.n_gpus_per_node)"
        )


def _policy_bytes(config: Config, part: str, model: PreTrainedModel) -> int:
    """Bytes of the policy's weights, by which the engine decides how much of its cache it keeps while others train."""
    own = sum(p.numel() for p in model.parameters())
    actor, critic = config.worker.actor.model.model_path, config.worker.critic_model.model_path
    if part == "critic" and actor != critic:
        own = count_parameters(local_name(config, actor or "")) or own
    return own * choose_placement(config).dtype.itemsize


def held_by(config: Config, part: str, size: ModelSize, dtype_of: DtypeOf) -> int:
    """GPU memory that trained models, their gradients and optimizers take, and teachers; the reference comes on top.

    It is the same whichever part asks, and only shapes count, not what is free. The other of actor and critic counts as
    large as this one where its weights are the same or cannot be counted.
    """
    own, trained = size.parameters, size.trained
    strategies = {each: getattr(config.worker, each).optim.strategy for each in ("actor", "critic")}
    held = model_bytes(own - trained, size.dtype, trained=False)
    held += model_bytes(trained, size.dtype, trained=True, strategy=strategies[part])
    frozen = part == "actor" and config.worker.actor.model.lora.rank > 0  # the head, which has no adapter
    held += head_bytes(size.config, size.dtype, trained=not frozen)
    if "values" in needs_of(config.algorithm.adv_estimator):
        other = "critic" if part == "actor" else "actor"
        whole = other == "critic" or not config.worker.actor.model.lora.rank
        others = _parameters_of(other, config, part, own)
        held += model_bytes(others, dtype_of(other), trained=whole, strategy=strategies[other])
    actor = _parameters_of("actor", config, part, own)
    if config.algorithm.trains_reward_model:
        held += model_bytes(actor, dtype_of("actor"), trained=True, strategy=strategies["actor"])
    for teacher in set(config.algorithm.distill.paths.values()):
        held += model_bytes(count_parameters(local_name(config, teacher)) or actor, dtype_of("actor"), trained=False)
    return held


def reference_bytes(config: Config, part: str, size: ModelSize, dtype_of: DtypeOf) -> int:
    """Bytes of the reference's weights; 0 where none is needed, or where it is the policy without its adapters."""
    if not needs_reference(config.algorithm) or config.worker.actor.model.lora.rank:
        return 0
    return model_bytes(_parameters_of("actor", config, part, size.parameters), dtype_of("actor"), trained=False)


def _parameters_of(wanted: str, config: Config, part: str, own: int) -> int:
    """Return the parameters of actor or critic, asked by `part`, which has `own`."""
    paths = {"actor": config.worker.actor.model.model_path, "critic": config.worker.critic_model.model_path}
    if wanted == part or "values" not in needs_of(config.algorithm.adv_estimator) or paths["actor"] == paths["critic"]:
        return own
    return count_parameters(local_name(config, paths[wanted] or "")) or own
