"""Plan of a run's GPU memory: what its models hold, and how many tokens of a micro-batch fit beside them."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from whet.algos import needs_of
from whet.config import Config, local_name
from whet.learn.memory import head_bytes, model_bytes, plan, token_bytes
from whet.learn.partition import Budget
from whet.model.fused import decoder_of
from whet.model.load import count_parameters
from whet.rollout.engine import kept_cache
from whet.training.device import choose_placement
from whet.training.experience import needs_reference


def planned_budget(config: Config, part: str, model: PreTrainedModel, needed: int) -> Budget:
    """Return what a model's GPU has room for; `needed` tokens in one micro-batch are enough."""
    worker = getattr(config.worker, part)
    total = torch.cuda.get_device_properties(model.device).total_memory
    return plan(
        total,
        held_bytes(config, part, model) + kept_cache(total, _policy_bytes(config, part, model)),
        sum(p.numel() for p in model.parameters()),
        token_bytes(
            model.config,
            model.dtype,
            fused=decoder_of(model) is not None,
            tower_trained=not worker.model.freeze_vision_tower,
        ),
        config.data.max_prompt_length + config.data.max_response_length,
        needed=needed,
        recompute=worker.model.enable_gradient_checkpointing,
        shared=worker.ulysses_size,
    )


def _policy_bytes(config: Config, part: str, model: PreTrainedModel) -> int:
    """Bytes of the policy's weights, by which the engine decides how much of its cache it keeps while others train."""
    own = sum(p.numel() for p in model.parameters())
    actor, critic = config.worker.actor.model.model_path, config.worker.critic_model.model_path
    if part == "critic" and actor != critic:
        own = count_parameters(local_name(config, actor or "")) or own
    return own * choose_placement(config).dtype.itemsize


def held_bytes(config: Config, part: str, model: PreTrainedModel) -> int:
    """GPU memory that models, gradients and optimizers take, whichever part asks; only shapes count, not what is free.

    The other of actor and critic counts as large as this one where its weights are the same or cannot be counted.
    """
    own, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad >= only) for only in (False, True))
    strategies = {each: getattr(config.worker, each).optim.strategy for each in ("actor", "critic")}
    held = model_bytes(own - trained, model.dtype, trained=False)
    held += model_bytes(trained, model.dtype, trained=True, strategy=strategies[part])
    held += head_bytes(model.config, model.dtype)
    actor, adapters = own, config.worker.actor.model.lora.rank > 0
    if "values" in needs_of(config.algorithm.adv_estimator):
        paths = {"actor": config.worker.actor.model.model_path, "critic": config.worker.critic_model.model_path}
        other = "critic" if part == "actor" else "actor"
        path = local_name(config, paths[other] or "")
        size = own if paths["actor"] == paths["critic"] else count_parameters(path) or own
        whole = other == "critic" or not adapters
        held += model_bytes(size, choose_placement(config, other).dtype, trained=whole, strategy=strategies[other])
        actor = own if part == "actor" else size
    if needs_reference(config.algorithm) and not adapters:  # whose base is the reference
        held += model_bytes(actor, choose_placement(config).dtype, trained=False)
    return held
