"""Traits of a model: text alone or images too, weights or adapters that train. `vision.py` is imported for images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig, PreTrainedModel

from whet.errors import UserError
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.model.vision import Vision

ADAPTER_FOLDER = "lora_adapter"  # in the actor's folder of a checkpoint, in place of huggingface/
IMAGE_IDS = ("image_token_id", "image_token_index")
VIDEO_IDS = ("video_token_id", "video_token_index")
_OTHER_IDS = ("vision_start_token_id", "vision_end_token_id", "vision_token_id")


def has_vision(config: PretrainedConfig) -> bool:
    """Return True if the model reads images."""
    return getattr(config, "vision_config", None) is not None


def has_mrope(config: PretrainedConfig) -> bool:
    """Return True if a token's position is three numbers (time, height, width)."""
    return "mrope_section" in (getattr(config.get_text_config(), "rope_parameters", None) or {})


def has_adapters(model: nn.Module) -> bool:
    """Return True if the model trains adapters instead of its weights."""
    return hasattr(model, "peft_config")


def language_class(config: PretrainedConfig) -> Any:
    """The class of transformers that opens a whole model of this config, head and vision tower included."""
    return AutoModelForImageTextToText if has_vision(config) else AutoModelForCausalLM


def text_model(model: PreTrainedModel) -> nn.Module:
    """The decoder alone: of a text model, all of it but the head."""
    base = model.base_model
    return cast(nn.Module, getattr(base, "language_model", base))


def vision_tower(model: PreTrainedModel) -> nn.Module | None:
    """The module that reads pixels, or None where a model has none."""
    base = model.base_model
    names = ("visual", "vision_tower", "vision_model")
    return next((part for name in names if isinstance(part := getattr(base, name, None), nn.Module)), None)


def freeze_tower(model: PreTrainedModel) -> int:
    """Train no parameter of the vision tower, adapters included; how many there are."""
    tower = vision_tower(model)
    return 0 if tower is None else sum(p.numel() for p in tower.requires_grad_(False).parameters())


def placeholder_ids(config: PretrainedConfig) -> list[int]:
    """Tokens that stand for images and videos in a prompt, or around them: a response must never hold one."""
    found = {getattr(config, name, None) for name in IMAGE_IDS + VIDEO_IDS + _OTHER_IDS}
    return sorted(i for i in found if isinstance(i, int) and i >= 0) if has_vision(config) else []


_VISIONS: WeakKeyDictionary[PreTrainedModel, Vision] = WeakKeyDictionary()


def vision_of(model: PreTrainedModel) -> Vision | None:
    """The vision side of a model, or None of a text model."""
    if not has_vision(model.config):
        return None
    if model not in _VISIONS:
        from whet.model.vision import Vision  # models of text need nothing of it

        _VISIONS[model] = Vision(model)
    return _VISIONS[model]


def check_prompt(model: PreTrainedModel, prompt: Prompt) -> None:
    """A `UserError` where a model cannot read a prompt's images."""
    if (vision := vision_of(model)) is not None:
        vision.check(prompt)
    elif prompt.media is not None:
        raise UserError(f"{prompt.uid}: the prompt has images or videos, which {type(model).__name__} does not read")


def as_batch(positions: Tensor) -> Tensor:
    """(N,) as (1, N), (3, N) as (3, 1, N): a batch of one row."""
    return positions.unsqueeze(-2)
