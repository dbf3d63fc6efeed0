"""Anthropic's Messages and OpenAI's Responses, read as chat completions and answered in their own form."""
