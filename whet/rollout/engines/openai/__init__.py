"""Servers with OpenAI's completions as an engine: it validates and generates, and cannot follow training."""
