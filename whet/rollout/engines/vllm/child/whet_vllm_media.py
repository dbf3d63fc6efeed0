"""Prompts with images and videos, as vLLM's engine takes them from its own processor."""

from __future__ import annotations

from typing import Any

import torch
from whet_vllm_wire import unpack


class MediaReader:
    """Knows how the model's inputs are divided into images and videos."""

    def __init__(self, model_config: Any) -> None:
        from vllm.multimodal import MULTIMODAL_REGISTRY

        self._processor = MULTIMODAL_REGISTRY.create_processor(model_config)

    def read(self, ids: list[int], shown: dict[str, Any], body: bytearray, version: int) -> dict[str, Any]:
        """A prompt for `add_request`. What vLLM computes of its images is kept for this version of the weights only."""
        from transformers import BatchFeature
        from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

        inputs = BatchFeature(dict(unpack(shown["tensors"], torch.frombuffer(body, dtype=torch.uint8))))
        items = MultiModalKwargsItems.from_hf_inputs(inputs, self._processor._get_mm_fields_config(inputs, {}))
        places = {
            kind: [
                PlaceholderRange(offset=first, length=count, is_embed=None if seen is None else torch.tensor(seen) > 0)
                for first, count, seen in each
            ]
            for kind, each in shown["places"].items()
        }
        names = {kind: [f"{shown['digest']}-{kind}-{i}-{version}" for i in range(len(p))] for kind, p in places.items()}
        return {
            "type": "multimodal",
            "prompt_token_ids": ids,
            "mm_kwargs": items,
            "mm_hashes": names,
            "mm_placeholders": places,
        }
