"""Prompts from files and hub datasets, in a resumable order."""
