"""Time of a rollout: sequences of given lengths through the slots of one engine, from one completion to the next."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecodeCost:
    """Seconds of a decode step: base + per_sequence · (sequences beyond `free`) + per_token · cached tokens.

    Up to `free` sequences cost no more than reading the weights, which `base` has.
    """

    base: float
    per_sequence: float
    per_token: float
    free: float = 0.0
    prefill: float = 0.0  # seconds of a prompt's token
    reread: float | None = None  # of a token that is read again after an interruption; None is `prefill`
    reading: float = 0.0  # of each pass that reads prompts, beside their tokens, where decoding waits for it

    def steps(self, count: int, sequences: int, cached: float) -> float:
        """Return the seconds of `count` steps of so many sequences, whose cache grows by a token each at every step."""
        each = self.base + self.per_sequence * max(0.0, sequences - self.free)
        return count * (each + self.per_token * (cached + sequences * (count + 1) / 2))

    def fitting(self, seconds: float, sequences: int, cached: float, most: int) -> int:
        """Return how many of `most` steps end within so many seconds."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.steps(middle, sequences, cached) <= seconds else (low, middle - 1)
        return low


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result of a rollout."""

    seconds: float
    finished: list[float]  # when each sequence finished, in the order given
    busy: float  # mean share of the slots in use


def decode(prompts: Sequence[float], lengths: Sequence[int], slots: int, cost: DecodeCost) -> Decoded:
    """Play a rollout: slots take waiting sequences in order, all running ones grow by a token a step.

    Nothing but completions changes the batch, so time moves from one completion to the next. A sequence's prompt is
    read when it joins. Preemption is not played: `slots` are as many as the cache holds.
    """
    waiting = iter(range(len(lengths)))
    running: list[tuple[int, int]] = []  # (step at which it ends, index)
    finished = [0.0] * len(lengths)
    now, step, cached, used, left = 0.0, 0, 0.0, 0.0, len(lengths)
    while left:
        while len(running) < slots and (index := next(waiting, None)) is not None:
            heapq.heappush(running, (step + max(1, lengths[index]), index))
            cached += prompts[index]
            now += prompts[index] * cost.prefill
        ends = running[0][0]
        took = cost.steps(ends - step, len(running), cached)
        used += took * len(running)
        cached += len(running) * (ends - step)
        now, step = now + took, ends
        while running and running[0][0] == step:
            _, index = heapq.heappop(running)
            finished[index] = now
            cached -= prompts[index] + max(1, lengths[index])
            left -= 1
    return Decoded(now, finished, used / (now * slots) if now else 0.0)
