"""The policy's model as a job finds it before any weight is read: its folder, its config, and how it reads and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.config import Config, local_name
from whet.model.load import end_ids, load_model_config, load_tokenizer
from whet.model.modality import has_vision

if TYPE_CHECKING:
    from whet.model.processor import Processor


@dataclass(frozen=True)
class ModelFolder:
    """Everything but the weights."""

    path: str
    tokenizer_path: str
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    ends: frozenset[int]  # tokens that end a response
    processor: Processor | None  # what the model makes of images; None for a model of text alone


def find_model(config: Config, say: Callable[[str], None]) -> ModelFolder:
    """Resolve and read what `worker.actor.model` names."""
    chosen = config.worker.actor.model
    path = resolve_model(local_name(config, chosen.model_path or ""), say)
    tokenizer_path = local_name(config, chosen.tokenizer_path) if chosen.tokenizer_path else path
    model_config = load_model_config(path, chosen.trust_remote_code, chosen.override_config)
    tokenizer = load_tokenizer(tokenizer_path, chosen.trust_remote_code)
    processor = None
    if has_vision(model_config):
        from whet.model.processor import load_processor  # models of text need nothing of it

        processor = load_processor(path, model_config, tokenizer, chosen.trust_remote_code)
    return ModelFolder(path, tokenizer_path, model_config, tokenizer, end_ids(path, tokenizer), processor)
