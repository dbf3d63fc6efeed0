"""A sample as its reward function sees it.

Columns, texts and lengths always travel to the worker. Pictures and turns are large, so they travel only to functions
that ask for them (`signature.py`), which a worker says in its hello.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from whet.rewards.wire import ASKED
from whet.types import Media, Sample

IMAGES, VIDEOS, TURNS = ASKED
MEDIA_LIMIT = 1 << 30  # bytes of pixels in one call; messages end at 4 GiB
Decode = Callable[[list[int]], str]


class TooLargeError(Exception):
    """The images of a call are more than `MEDIA_LIMIT`; the message says how much they are."""


def reward_input(sample: Sample, wanted: Collection[str] = (), decode: Decode | None = None) -> dict[str, Any]:
    """Return every column of a sample's row, three keys no column can hide, and what else is `wanted`.

    `decode` makes texts of the turns of samples that have several.
    """
    found = {
        "prompt": sample.prompt.text,
        **sample.prompt.extra,
        "response": sample.text,
        "response_length": len(sample.ids),
        "ground_truth": sample.prompt.answer,
    }
    if IMAGES in wanted:
        found[IMAGES] = [image for media in _media(sample) for image in media.images]
    if VIDEOS in wanted:
        found[VIDEOS] = [video for media in _media(sample) for video in media.videos]
    if TURNS in wanted:
        found[TURNS] = turns_of(sample, decode)
    return found


def turns_of(sample: Sample, decode: Decode | None) -> list[dict[str, Any]]:
    """Return the response as turns, each of one author: text, by_model, tokens and the reward that they earned.

    What several versions of the policy wrote without a break is one turn. A reward is None where none was given.
    """
    turns = []
    for by_model, group in groupby(sample.segments, key=lambda segment: segment.by_model):
        segments = list(group)
        ids = [token for segment in segments for token in segment.ids]
        whole = len(segments) == len(sample.segments)
        rewards = [segment.reward for segment in segments if segment.reward is not None]
        turns.append(
            {
                "text": sample.text if whole else decode(ids) if decode else None,
                "by_model": by_model,
                "tokens": len(ids),
                "reward": sum(rewards) if rewards else None,
            }
        )
    return turns


def check_size(inputs: Iterable[dict[str, Any]]) -> None:
    """Raise TooLargeError if the pictures of a call, each counted once, have too many pixels to be handed over."""
    seen: dict[int, int] = {}
    for each in inputs:
        for image in [*each.get(IMAGES, ()), *(frame for video in each.get(VIDEOS, ()) for frame in video)]:
            width, height = getattr(image, "size", (0, 0))  # a column of the row may have the name
            seen[id(image)] = 3 * width * height
    if (total := sum(seen.values())) > MEDIA_LIMIT:
        raise TooLargeError(
            f"its images and videos take {total / 2**20:.0f} MiB, more than the {MEDIA_LIMIT / 2**20:.0f} MiB that a "
            "call may have: lower data.max_pixels or data.video_fps"
        )


def _media(sample: Sample) -> list[Media]:
    given = [sample.prompt.media, *(segment.media for segment in sample.segments)]
    return [media for media in given if media is not None]
