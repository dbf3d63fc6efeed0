"""`worker.rollout.env=single_turn`: the episode ends with the policy's first turn, as without an environment."""

from __future__ import annotations

from typing import Any

from whet.envs.protocol import Action
from whet.types import Prompt


class SingleTurnEnv:
    """Lets the policy answer the row's prompt once; the reward function scores what it wrote."""

    def reset(self, prompt: Prompt) -> None:
        """Leave the prompt as it is."""

    def step(self, action: Action) -> tuple[None, float, bool, dict[str, Any]]:
        """End the episode without a reward."""
        return None, 0.0, True, {}


def single_turn(argument: str) -> SingleTurnEnv:
    """Return the environment, which takes no argument."""
    return SingleTurnEnv()


ENV = single_turn
