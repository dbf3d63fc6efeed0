"""vLLM as an engine: in a process of its own, in this one, or behind its HTTP server."""

from whet.rollout.vllm.engine import VLLMEngine
from whet.rollout.vllm.settings import Settings

__all__ = ["Settings", "VLLMEngine"]
