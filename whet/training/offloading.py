"""Offload keys of a config: what the reference waits with in host memory, and which keys have no effect."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from whet.config import Config
from whet.learn.learner import LocalLearner
from whet.learn.offload import Offload, of_weights
from whet.model.modality import has_adapters
from whet.training.device import is_distributed
from whet.training.parts import shares_weights

_KEYS = ("offload_params", "offload_optimizer")


def reference_offload(config: Config, model: PreTrainedModel, learner: LocalLearner) -> Offload:
    """Return the offload of a reference; one that is the policy without its adapters has the policy's."""
    return learner.offload if has_adapters(model) else of_weights(model, _waits(config, learner.model), fixed=True)


def renew_reference_offload(config: Config, learner: LocalLearner) -> None:
    """Have a learner's reference wait in host memory, or no longer, as another stage's config or plan says."""
    if learner.reference is not None and learner.reference.offload is not learner.offload:
        learner.reference.offload.wait = _waits(config, learner.model)


def offload_notes(config: Config, device: torch.device) -> Iterator[str]:
    """Yield a sentence for each offload key that is set and has no effect on this device."""
    for part in ("actor", "critic", "ref"):
        for name in _KEYS:
            if getattr(getattr(config.worker, part).offload, name):
                key = f"worker.{part}.offload.{name}"
                if why := _without_effect(config, key, device):
                    yield f"{key}=true changes nothing: {why}"
    for part in ("actor", "critic"):
        if getattr(config.worker, part).model.enable_activation_offload:
            key = f"worker.{part}.model.enable_activation_offload"
            if why := _without_effect(config, key, device):
                yield f"{key}=true changes nothing: {why}"
    if config.worker.ref.fsdp.enable_cpu_offload and not is_distributed(config):
        key = "worker.ref.fsdp.enable_cpu_offload"
        if why := _without_effect(config, "worker.ref.offload.offload_params", device):
            yield f"{key}=true changes nothing: {why}"


def _without_effect(config: Config, key: str, device: torch.device) -> str | None:
    if device.type == "cpu":
        return "on a CPU all of it is in host memory already"
    if key.endswith(".enable_activation_offload"):
        other = key.replace("activation_offload", "gradient_checkpointing")
        kept = getattr(config.worker, key.split(".")[1]).model.enable_gradient_checkpointing is False
        return f"{other}=false keeps all activations on the device; leave one of the two out" if kept else None
    if key == "worker.ref.offload.offload_optimizer":
        return "the reference has no optimizer"
    if key == "worker.ref.offload.offload_params":
        if config.worker.actor.model.lora.rank:
            return "with adapters the reference is the policy without them, and takes no memory of its own"
        if _in_loss(config):
            return "algorithm.kl_penalty=full with use_kl_loss asks the reference in every pass of an update"
    if key == "worker.actor.offload.offload_params" and shares_weights(config):
        return f"worker.rollout.name={config.worker.rollout.name} samples with the learner's own weights"
    return None


def _waits(config: Config, policy: PreTrainedModel) -> bool:
    """Return True if the reference of a policy waits in host memory, as the config says or the plan of its GPU."""
    from whet.training.memory import reference_may_wait, reference_planned_to_wait

    asked = reference_may_wait(config)
    return asked if asked is not None else policy.device.type == "cuda" and reference_planned_to_wait(config, policy)


def _in_loss(config: Config) -> bool:
    return config.algorithm.kl_penalty == "full" and config.algorithm.use_kl_loss
