"""Engines that are servers: SGLang, TensorRT-LLM, and what speaks OpenAI's completions with token ids."""

from whet.rollout.engines.server.check import check_server
from whet.rollout.engines.server.client import TOKEN, Client
from whet.rollout.engines.server.completions import CompletionsEngine
from whet.rollout.engines.server.sglang import SGLangEngine

__all__ = ["TOKEN", "Client", "CompletionsEngine", "SGLangEngine", "check_server"]
