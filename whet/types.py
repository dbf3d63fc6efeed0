"""Prompts, segments, samples and groups: the objects that packages exchange.

They are ragged (a response is as long as it is) and hold plain Python lists; nothing is padded or made a tensor until
the learner packs it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    messages: list[dict[str, Any]] = field(default_factory=list)  # the chat that `text` was written from, if known


@dataclass(slots=True)
class Segment:
    """Consecutive tokens of a response with one author: the policy, or a tool or environment that answered it."""

    ids: list[int]
    by_model: bool = True  # True if the policy wrote the tokens; only those are trained on
    log_probs: list[float] = field(default_factory=list)  # the sampler's, at its temperature; may be empty otherwise
    version: int = 0  # number of updates that the policy had seen when it wrote the tokens
    media: Media | None = None  # images and videos whose placeholder tokens are in `ids`
    reward: float | None = None  # earned by the end of this segment, besides the score of the whole sample
    restart: bool = False  # True if what the policy reads from here on begins with `ids`, and nothing before is seen


def segments_of(ids: Sequence[int], mask: Sequence[int]) -> list[Segment]:
    """Cut tokens into segments where `mask` changes; 1 marks those that the policy wrote, or is to write."""
    segments: list[Segment] = []
    for token, by_model in zip(ids, mask, strict=True):
        if not segments or segments[-1].by_model != bool(by_model):
            segments.append(Segment([], bool(by_model)))
        segments[-1].ids.append(token)
    return segments


@dataclass(slots=True)
class Sample:
    """One response to one prompt: its segments in order, and what is known of them.

    `ids`, `mask`, `log_probs`, `versions` and `rewards` are views over the tokens of all segments. They are read, never
    written to; a response grows by another segment.
    """

    prompt: Prompt
    segments: list[Segment]
    finish: FinishReason
    index: int = 0  # which of the prompt's n samples
    group: int | None = None  # samples with the same number are compared with each other; None where none are
    text: str = ""  # decoded `ids`, as the reward function reads them
    scores: dict[str, float] = field(default_factory=dict)  # "overall" drives training, the rest is logged
    failure: str | None = None  # why there is no score ("raised", "timeout", ..., "env raised", ...), or None
    dropped: bool = False  # True if a filter left its group out of training
    advantage: float = 0.0  # mean advantage over the response, for the sample log
    notes: dict[str, str] = field(default_factory=dict)  # texts of judges by their names, for the sample log
    end: str | None = None  # why the episode ended, with an environment
    info: dict[str, float] = field(default_factory=dict)  # numbers that the environment reported, the last of each name
    # Experts that the sampler sent each token of prompt and response to, but the last: array (P + R - 1, layers, K) of
    # their numbers, the dtype's largest where unknown. None where routing was not recorded.
    routing: Any = field(default=None, compare=False)

    @classmethod
    def written(
        cls,
        prompt: Prompt,
        ids: list[int],
        log_probs: list[float],
        finish: FinishReason,
        *,
        index: int = 0,
        group: int | None = None,
        version: int = 0,
        text: str = "",
        scores: dict[str, float] | None = None,
    ) -> Sample:
        """Make a single-turn sample: one segment, all of it written by the policy."""
        segment = Segment(ids, True, log_probs, version)
        return cls(prompt, [segment], finish, index, group, text, {} if scores is None else scores)

    @property
    def ids(self) -> list[int]:
        """Token ids of the response; the end-of-sequence token is included if the policy wrote it."""
        return self.segments[0].ids if len(self.segments) == 1 else [i for s in self.segments for i in s.ids]

    @property
    def mask(self) -> list[int]:
        """1 for every token that the policy wrote, 0 for the others."""
        return [int(s.by_model) for s in self.segments for _ in s.ids]

    @property
    def log_probs(self) -> list[float]:
        """The sampler's log-prob of every token, 0 where none was recorded."""
        if len(self.segments) == 1 and len(self.segments[0].log_probs) == len(self.segments[0].ids):
            return self.segments[0].log_probs
        return [value for s in self.segments for value in s.log_probs or [0.0] * len(s.ids)]

    @property
    def versions(self) -> list[int]:
        """Policy version of every token; -1 for tokens that the policy did not write."""
        return [s.version if s.by_model else -1 for s in self.segments for _ in s.ids]

    @property
    def rewards(self) -> list[float]:
        """Reward of every token: each segment's on its last token, the sample's score on the last token of all."""
        rewards = [0.0] * sum(len(s.ids) for s in self.segments)
        end = 0
        for segment in self.segments:
            end += len(segment.ids)
            if segment.reward is not None and end:
                rewards[end - 1] += segment.reward
        if rewards:
            rewards[-1] += self.scores["overall"]
        return rewards

    @property
    def version(self) -> int:
        """The oldest policy version that wrote a token of the response."""
        return min((s.version for s in self.segments if s.by_model), default=0)

    @property
    def branches(self) -> list[int]:
        """Number of tokens of each part of the response that sees nothing of the parts before it; usually one part."""
        lengths = [0]
        for segment in self.segments:
            if segment.restart:
                lengths.append(0)
            lengths[-1] += len(segment.ids)
        return lengths

    @property
    def turns(self) -> int:
        """Number of times that the policy wrote; what several versions wrote without a break is one."""
        if len(self.segments) == 1:
            return int(self.segments[0].by_model)
        before = [False, *(s.by_model for s in self.segments)]
        return sum(s.by_model and not earlier for s, earlier in zip(self.segments, before))

    @property
    def turn_rewards(self) -> list[float]:
        """Rewards of the policy's turns, 0 for a turn that earned none."""
        return [sum(s.reward or 0.0 for s in turn) for turn in self._by_turn()]

    @property
    def turn_tokens(self) -> list[int]:
        """Number of tokens that the policy wrote in each turn."""
        return [sum(len(s.ids) for s in turn if s.by_model) for turn in self._by_turn()]

    def _by_turn(self) -> list[list[Segment]]:
        """Return the segments of each turn of the policy, with what was answered behind it."""
        turns: list[list[Segment]] = []
        answered = True
        for segment in self.segments:
            if segment.by_model and answered:
                turns.append([])
            if turns:
                turns[-1].append(segment)
            answered = not segment.by_model
        return turns

    def score(self, name: str) -> float | None:
        """Return a score by its name; `overall` with what segments earned, so that it is the reward in all."""
        return self.reward if name == "overall" and name in self.scores else self.scores.get(name)

    @property
    def reward(self) -> float:
        """Total reward: the score of the whole sample, and what its segments earned."""
        earned = [s.reward for s in self.segments if s.reward is not None]
        return self.scores["overall"] + sum(earned) if earned else self.scores["overall"]


@dataclass(slots=True)
class Group:
    """The samples that are compared with each other: those of one prompt, or of one environment instance."""

    row: int  # row of the data that the prompt came from
    samples: list[Sample]
    times: tuple[float, float, float] | None = None  # of `perf_counter`: begun, sampled, scored; None if not known
