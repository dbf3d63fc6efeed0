"""vLLM as an engine: in a process of its own, in this one, or behind its HTTP server."""

from whet.rollout.engines.vllm.engine import VLLMEngine, open_vllm
from whet.rollout.engines.vllm.server import OwnServerEngine, VLLMServerEngine
from whet.rollout.engines.vllm.settings import Settings

__all__ = ["OwnServerEngine", "Settings", "VLLMEngine", "VLLMServerEngine", "open_vllm"]
