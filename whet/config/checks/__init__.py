"""Checks of a config by job: each yields a sentence for every problem, before any file or weight is loaded."""
