"""What flows between the rooms: prompts, samples, and nothing else.

These are the only objects that cross a wall. They are ragged (a response is as long as it is) and hold plain Python
lists; nothing is padded or made a tensor until the learner packs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass(slots=True)
class Media:
    """Images and videos of one prompt, decoded and resized once, and what the model's processor made of them."""

    images: list[Any] = field(default_factory=list)  # PIL images in RGB, resized to what the model sees
    videos: list[list[Any]] = field(default_factory=list)  # the RGB frames of every video, resized alike
    inputs: dict[str, Any] = field(default_factory=dict)  # the processor's CPU tensors for this prompt alone


@dataclass(slots=True)
class Prompt:
    """One row of the data, ready to be sampled from."""

    uid: str  # names the row: "train.jsonl:17"
    ids: list[int]  # token ids, chat template applied
    text: str  # what those ids spell, for people
    answer: Any = None  # the ground truth that the reward function sees
    extra: dict[str, Any] = field(default_factory=dict)  # every column of the row
    media: Media | None = None


@dataclass(slots=True)
class Sample:
    """One response to one prompt, with everything later rooms learn about it."""

    prompt: Prompt
    ids: list[int]  # response token ids, the end-of-sequence token included when the model wrote it
    mask: list[int]  # 1 where the model wrote the token, 0 where a tool or the environment did
    log_probs: list[float]  # the sampler's log-prob of each token, at the sampling temperature
    finish: FinishReason
    index: int = 0  # which of the prompt's n samples
    text: str = ""  # what `ids` spell, as the reward function reads it
    turns: int = 1
    version: int = 0  # how many updates the policy that wrote it had seen
    scores: dict[str, float] = field(default_factory=dict)  # "overall" drives training, the rest is logged
    failure: str | None = None  # why the reward function gave no score ("raised", "timeout", ...), or None
    dropped: bool = False  # a filter left its group out of training
    advantage: float = 0.0  # mean advantage over the response, for the sample log

    @property
    def reward(self) -> float:
        """The score that drives training."""
        return self.scores["overall"]
