"""TensorRT-LLM's server, asked for token ids."""

from __future__ import annotations

from typing import ClassVar

from whet.rollout.engines.server.completions import CompletionsEngine
from whet.rollout.engines.trtllm.spec import CAPABILITIES


class TrtllmEngine(CompletionsEngine):
    """TensorRT-LLM's server, `trtllm-serve`."""

    name = "trtllm"
    capabilities = CAPABILITIES
    token_ids: ClassVar = {"detokenize": False}  # TensorRT-LLM gives ids instead of text
