"""Models without weights: of the right shape, for ranks that are sent theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AutoModel,
    PreTrainedModel,
)

from whet.model import attention
from whet.model.load import load_model_config
from whet.model.modality import language_class
from whet.model.support import ACTOR

if TYPE_CHECKING:
    pass


def empty_model(
    path: str,
    dtype: torch.dtype = torch.float32,
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
) -> PreTrainedModel:
    """The model that `load_model` would return, on "meta": its shapes, and no weights."""
    return _empty(None, path, dtype, trust_remote_code, override, ACTOR)


def empty_backbone(
    path: str,
    dtype: torch.dtype = torch.float32,
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
    section: str = "worker.critic.model",
) -> PreTrainedModel:
    """The same for `load_backbone`."""
    return _empty(AutoModel, path, dtype, trust_remote_code, override, section)


def _empty(
    kind: type[AutoModel] | None,
    path: str,
    dtype: torch.dtype,
    trust_remote_code: bool,
    override: dict[str, Any] | None,
    section: str,
) -> PreTrainedModel:
    config = load_model_config(path, trust_remote_code, override, section)
    with torch.device("meta"):
        model: PreTrainedModel = (kind or language_class(config)).from_config(
            config,
            dtype=dtype,
            attn_implementation=attention.implementation(config),
            trust_remote_code=trust_remote_code,
        )
    model.tie_weights()
    return model.eval()
