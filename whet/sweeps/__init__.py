"""Runs of every combination of some values: what they are, running them one after the other, and their table."""
