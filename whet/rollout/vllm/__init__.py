"""vLLM as an engine: in a process of its own, in this one, or behind its HTTP server."""

from whet.rollout.vllm.engine import VLLMEngine, open_vllm
from whet.rollout.vllm.server import OwnServerEngine, VLLMServerEngine
from whet.rollout.vllm.settings import Settings

__all__ = ["OwnServerEngine", "Settings", "VLLMEngine", "VLLMServerEngine", "open_vllm"]
