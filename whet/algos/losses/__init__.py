"""Policy losses; importing this package registers them."""

from whet.algos.losses import ppo

__all__ = ["ppo"]
