"""The critic of PPO at the start of a run: the folder of its weights, and the value model with its optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, local_name
from whet.learn.layout import check_sizes
from whet.model.load import load_backbone, load_model_config
from whet.model.modality import freeze_tower
from whet.tracking.console import Console
from whet.training.device import Placement
from whet.training.parts import budget, check_lengths

if TYPE_CHECKING:
    from whet.learn.critic import LocalCritic
    from whet.learn.value_head import ValueModel


def critic_path(config: Config, tokenizer: PreTrainedTokenizerBase, console: Console) -> str:
    """Return the folder of the critic's initial weights, its config checked."""
    chosen = config.worker.critic_model
    path = resolve_model(local_name(config, chosen.model_path or ""), console.note)
    model = load_model_config(path, chosen.trust_remote_code, chosen.override_config, "worker.critic.model")
    check_lengths(config, model, tokenizer, "critic")
    check_sizes(model, 1, config.worker.critic.ulysses_size, "critic")
    return path


def critic_weights(path: str, checkpoint: Checkpoint | None) -> str:
    """Return the folder that the critic's weights are read from: the checkpoint's, else `path`."""
    saved = checkpoint.path / "critic" / "huggingface" if checkpoint else None
    return str(saved) if saved is not None and saved.is_dir() else path


def load_critic(config: Config, weights: str, placement: Placement) -> ValueModel:
    """Load a value model to its device; without a value head in the folder all values are 0."""
    from whet.learn.value_head import ValueModel

    chosen = config.worker.critic_model
    backbone = load_backbone(
        weights, placement.dtype, placement.device, chosen.trust_remote_code, chosen.override_config
    )
    if config.worker.critic.model.freeze_vision_tower:
        freeze_tower(backbone)
    model = ValueModel(backbone)
    model.load_head(Path(weights))
    return model


def open_critic(config: Config, model: ValueModel, total_steps: int) -> LocalCritic:
    """Return the value model with its optimizer."""
    from whet.learn.critic import LocalCritic

    return LocalCritic(model, config.worker.critic, total_steps, budget(config, "critic", model.backbone))
