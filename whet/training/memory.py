"""Plan of a run's GPU memory: what its models hold, and how many tokens of a micro-batch fit beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig, PreTrainedModel

from whet.algos import needs_of
from whet.config import Config, local_name
from whet.config.schema.model import ModelConfig
from whet.errors import UserError
from whet.learn.memory import TokenBytes, head_bytes, model_bytes, plan, token_bytes
from whet.learn.partition import Budget
from whet.model.fused import decoder_of
from whet.model.load import count_parameters
from whet.rollout.engine import kept_cache
from whet.training.device import Placement, choose_placement
from whet.training.experience import needs_reference


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


def planned_budget(config: Config, part: str, model: PreTrainedModel, needed: int) -> Budget:
    """Return what a model's GPU has room for; `needed` tokens in one micro-batch are enough."""
    total = torch.cuda.get_device_properties(model.device).total_memory
    held = held_bytes(config, part, model) + kept_cache(total, _policy_bytes(config, part, model))
    return budget_on(total, held, config, part, ModelSize.of(model), needed)


def budget_on(total: int, held: int, config: Config, part: str, size: ModelSize, needed: int) -> Budget:
    """Return what a GPU of `total` bytes has room for beside `held` bytes of models and of kept cache."""
    worker = getattr(config.worker, part)
    offloaded = worker.model.offloads_activations  # only what a recomputed layer keeps can be
    return plan(
        total,
        held,
        size.parameters,
        activation_bytes(size, worker.model, offloaded),
        config.data.max_prompt_length + config.data.max_response_length,
        needed=needed,
        recompute=True if offloaded else worker.model.enable_gradient_checkpointing,
        shared=worker.ulysses_size,
    )


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
    if needs_reference(config.algorithm) and adapters is None and not config.worker.ref.offload.offload_params:
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


def held_bytes(config: Config, part: str, model: PreTrainedModel) -> int:
    """GPU memory that the models of a run take on this machine, beside one that is loaded."""
    return held_by(config, part, ModelSize.of(model), lambda other: choose_placement(config, other).dtype)


def held_by(config: Config, part: str, size: ModelSize, dtype_of: Callable[[str], torch.dtype]) -> int:
    """GPU memory that models, gradients and optimizers take, whichever part asks; only shapes count, not what is free.

    The other of actor and critic counts as large as this one where its weights are the same or cannot be counted.
    `dtype_of` gives the dtype of "actor" or "critic".
    """
    own, trained = size.parameters, size.trained
    strategies = {each: getattr(config.worker, each).optim.strategy for each in ("actor", "critic")}
    held = model_bytes(own - trained, size.dtype, trained=False)
    held += model_bytes(trained, size.dtype, trained=True, strategy=strategies[part])
    held += head_bytes(size.config, size.dtype)
    actor, adapters = own, config.worker.actor.model.lora.rank > 0
    if "values" in needs_of(config.algorithm.adv_estimator):
        paths = {"actor": config.worker.actor.model.model_path, "critic": config.worker.critic_model.model_path}
        other = "critic" if part == "actor" else "actor"
        path = local_name(config, paths[other] or "")
        others = own if paths["actor"] == paths["critic"] else count_parameters(path) or own
        whole = other == "critic" or not adapters
        held += model_bytes(others, dtype_of(other), trained=whole, strategy=strategies[other])
        actor = own if part == "actor" else others
    if needs_reference(config.algorithm) and not adapters:  # whose base is the reference
        held += model_bytes(actor, dtype_of("actor"), trained=False)
    if config.algorithm.trains_reward_model:
        held += model_bytes(actor, dtype_of("actor"), trained=True, strategy=strategies["actor"])
    for teacher in set(config.algorithm.distill.paths.values()):
        held += model_bytes(count_parameters(local_name(config, teacher)) or actor, dtype_of("actor"), trained=False)
    return held
