"""Scorers, one file each: the file's name is the scorer's, `SCORER` its description (whet/rewards/registry.py)."""
