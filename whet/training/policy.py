"""The policy at the start of a run, from its model folder or a checkpoint, and the reference beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedModel

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, local_name
from whet.errors import UserError
from whet.learn.learner import LocalLearner
from whet.model.modality import ADAPTER_FOLDER, freeze_tower, has_adapters, has_vision
from whet.training.device import Placement, reference_placement
from whet.training.parts import budget, load_weights

if TYPE_CHECKING:
    from whet.learn.reference import LocalReference


def check_model(config: Config, model: PretrainedConfig) -> int | None:
    """Raise a `UserError` unless the model can be trained here as configured; return its `adapter_parameters`."""
    if rank := config.worker.actor.model.lora.rank:
        from whet.model.lora import KEY, require_peft

        require_peft(f"{KEY}.rank={rank}")
    return check_shape(config, model)


def check_shape(config: Config, model: PretrainedConfig) -> int | None:
    """Raise a `UserError` unless the config fits the model's shape; return its `adapter_parameters`."""
    tensor, sequence = config.worker.actor.tensor_parallel_size, config.worker.actor.ulysses_size
    if tensor > 1 or sequence > 1:
        from whet.learn.layout import check_sizes

        check_sizes(model, tensor, sequence)
    check_frozen(config, model)
    return adapter_parameters(config, model)


def adapter_parameters(config: Config, model: PretrainedConfig) -> int | None:
    """Return the number of adapter parameters, after checking that they fit the model; None without adapters."""
    chosen = config.worker.actor.model
    if not chosen.lora.rank:
        return None
    from whet.model.lora import check_adapters

    return check_adapters(model, chosen.lora, chosen.trust_remote_code)


def check_frozen(config: Config, model: PretrainedConfig) -> None:
    """Raise a `UserError` if a vision tower is to be frozen that the model does not have."""
    if config.worker.actor.model.freeze_vision_tower and not has_vision(model):
        key = "worker.actor.model.freeze_vision_tower=true"
        raise UserError(f"{key}: {model.model_type} has no vision encoder; set it to false")


def load_policy(
    config: Config, path: str, checkpoint: Checkpoint | None, placement: Placement, say: Callable[[str], None]
) -> PreTrainedModel:
    """Load the checkpoint's policy, or the initial one: the model in `path`, with adapters if configured."""
    chosen = config.worker.actor.model
    saved = checkpoint.path / "actor" if checkpoint else None
    weights = str(saved / "huggingface") if saved and not chosen.lora.rank else path
    model = load_weights(weights, config, placement)
    say(f"model: {weights}, {model.num_parameters():,} parameters, {placement}")
    if chosen.lora.rank:
        from whet.model.lora import add_adapters, load_adapters

        add_adapters(model, chosen.lora, local_name(config, chosen.model_path or ""), config.data.seed)
        if saved is not None:
            load_adapters(model, saved / ADAPTER_FOLDER)
    if chosen.freeze_vision_tower:
        say(f"vision tower: {freeze_tower(model):,} parameters, which are not trained")
    if chosen.lora.rank:
        trained = model.num_parameters(only_trainable=True)
        origin = f" from {saved / ADAPTER_FOLDER}" if saved else ""
        say(f"adapters: rank {chosen.lora.rank}{origin}, {trained:,} parameters, which alone are trained")
    return model


def open_reference(config: Config, path: str, placement: Placement, learner: LocalLearner) -> LocalReference:
    """Load the initial weights as the learner's reference: its own below the adapters, else a frozen copy."""
    own = has_adapters(learner.model)
    model = learner.model if own else load_weights(path, config, reference_placement(config, placement))
    return attach_reference(config, model, learner)


def attach_reference(config: Config, model: PreTrainedModel, learner: LocalLearner) -> LocalReference:
    """Make a model the learner's reference, for exact KL divergences, and return it."""
    from whet.learn.reference import LocalReference
    from whet.training.offloading import reference_offload

    tokens = budget(config, "actor", learner.model).tokens_experience
    offload = reference_offload(config, model, learner)
    actor, temperature = config.worker.actor, config.worker.rollout.temperature
    learner.reference = LocalReference(model, actor, temperature, tokens, offload)
    return learner.reference
