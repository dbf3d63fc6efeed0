"""vLLM as an engine: in a process of its own, in this one, or behind its HTTP server."""
