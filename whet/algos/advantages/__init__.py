"""Advantage estimators; importing this package registers them."""

from whet.algos.advantages import grpo, rloo

__all__ = ["grpo", "rloo"]
