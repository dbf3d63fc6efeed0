"""The `Env` protocol: one instance plays one episode with the policy.

A user's environment needs no import of whet: any class with `reset` and `step` will do. Methods may be `async def`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from whet.types import FinishReason, Prompt

Message = dict[str, Any]  # {"role": ..., "content": ...}, as chat templates read it
# None (from `reset` only), text, chat messages, a PIL image, or {"text": ..., "images": [...]}
Observation = Any
StepResult = tuple[Observation, float, bool, dict[str, Any]]  # observation, reward, done, info


class Action(str):
    """The text of one turn of the policy, without the token that ended it."""

    ids: list[int]  # its tokens as they were drawn, with the token that ended it
    finish: FinishReason  # "stop", or "length" where the turn was cut off
    turn: int  # counts from 1

    def __new__(cls, text: str, ids: Sequence[int] = (), finish: FinishReason = "stop", turn: int = 1) -> Action:
        made = super().__new__(cls, text)
        made.ids, made.finish, made.turn = list(ids), finish, turn
        return made


class Env(Protocol):
    """An environment. Each sample has an instance of its own, which is closed whatever happens.

    Optional members: `close()`; `tools`, a list of function schemas for the chat template; `role`, the role of
    observations that are given as text or images ("user" without it).
    """

    def reset(self, prompt: Prompt) -> Observation:
        """Begin an episode for a row of the data and return what the policy reads first.

        None leaves the row's prompt as it is. Text and images are put behind the prompt's last user turn. A list of
        messages takes the place of the row's prompt. A parameter named `seed` is given a number that is the same for
        all samples of a group.
        """
        ...

    def step(self, action: Action) -> StepResult:
        """Answer a turn of the policy: observation, reward of the turn, whether the episode is over, and info.

        Numbers in `info` are averaged into metrics; its "end" says why the episode ended; "accuracy" counts as the
        sample's accuracy where no reward function gives one; "message" is the policy's turn as the environment parsed
        it. The observation of the last step is not read by anybody.
        """
        ...


EnvFactory = Callable[[], Env]
