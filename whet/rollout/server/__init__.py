"""Engines that are servers: SGLang, TensorRT-LLM, and what speaks OpenAI's completions with token ids."""

from whet.rollout.server.check import check_server
from whet.rollout.server.client import TOKEN, Client
from whet.rollout.server.completions import CompletionsEngine
from whet.rollout.server.sglang import SGLangEngine

__all__ = ["TOKEN", "Client", "CompletionsEngine", "SGLangEngine", "check_server"]
