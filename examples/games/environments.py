"""The environments of the games, for configs: `worker.rollout.env: ../environments.py:NumberGame`."""

from number_game.env import NumberGame
from phone.task import PhoneTask
from tree_game.env import TreeGame

__all__ = ["NumberGame", "PhoneTask", "TreeGame"]
