"""Servers with OpenAI's completions, asked for token ids."""

from __future__ import annotations

from typing import ClassVar

from whet.rollout.engines.openai.spec import CAPABILITIES
from whet.rollout.engines.server.completions import CompletionsEngine


class OpenAIEngine(CompletionsEngine):
    """Any server with OpenAI's completions that returns token ids, as vLLM does."""

    name = "openai"
    capabilities = CAPABILITIES
    token_ids: ClassVar = {"return_token_ids": True}  # vLLM and its kin give ids beside the text
