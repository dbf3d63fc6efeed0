"""TensorRT-LLM's server as an engine: it validates and generates, and cannot follow training."""
