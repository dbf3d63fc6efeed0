"""Advantage estimators, one file each; `whet/algos/registry.py` finds them by name."""
