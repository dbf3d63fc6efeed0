"""States in which the turns of episodes were taken, as numbers: equal numbers are equal states of one group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from whet.learn.packing import pad
from whet.types import Sample, Segment


def turn_states(samples: Sequence[Sample], anchor: str) -> Tensor:
    """Return (B, T): the number of the state before the turn that a token belongs to, -1 where the policy wrote none.

    Samples of different groups share no state. With the anchor `observation` a state is what the environment wrote
    last, with `history` everything before the turn; before the first turn both are the prompt.
    """
    numbers: dict[Hashable, int] = {}
    rows = [_row(sample, anchor, numbers) for sample in samples]
    # `pad` fills with 0, so numbers are shifted by one and back.
    return pad([[number + 1 for number in row] for row in rows], torch.int64) - 1


def _row(sample: Sample, anchor: str, numbers: dict[Hashable, int]) -> list[int]:
    row: list[int] = []
    seen: list[Hashable] = []  # what the state is made of
    current, turning = -1, False
    for segment in sample.segments:
        if segment.by_model and not turning:
            state = (sample.group, tuple(sample.prompt.ids), *seen)
            current = numbers.setdefault(state, len(numbers))
        row += [current if segment.by_model else -1] * len(segment.ids)
        if anchor == "history":
            seen.append(_content(segment))
        elif not segment.by_model:
            # several pieces of one answer belong to one observation
            seen = [_content(segment)] if turning or not seen else [*seen, _content(segment)]
        turning = segment.by_model
    return row


def _content(segment: Segment) -> Hashable:
    """Return tokens and pixels: images have the same placeholder tokens whatever they show."""
    if segment.media is None:
        return tuple(segment.ids)
    images = [*segment.media.images, *(frame for video in segment.media.videos for frame in video)]
    return tuple(segment.ids), tuple(image.tobytes() for image in images)
