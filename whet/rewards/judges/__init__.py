"""Judges: language models that are asked how good a response is."""
