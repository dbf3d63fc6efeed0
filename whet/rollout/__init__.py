"""Engines that sample responses to prompts."""
