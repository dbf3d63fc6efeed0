"""Policy losses, one file each; `whet/algos/registry.py` finds them by name."""
