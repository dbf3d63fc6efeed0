"""Shared by engines that are HTTP servers: requests, checks, and OpenAI's completions with token ids."""
