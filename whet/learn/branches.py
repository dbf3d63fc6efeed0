"""Branches of samples: the rows of tokens that the policy read, and which tokens are predicted from them.

Most samples have one branch: prompt and response. An episode whose chat template rewrites earlier turns has several,
each with the conversation as it was written then. A token that the policy drew is predicted in the branch in which it
was drawn, and is context in all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.types import Media, Prompt, Sample, Segment

_TAG = 1 << 32  # keys of tokens are ids + tag · _TAG


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """L tokens of one sample that are read one behind the other, up to the last from which anything is predicted."""

    row: int  # of the sample in the batch
    ids: np.ndarray  # (L,)
    keys: np.ndarray  # (L,) equal where tokens and what they show are: branches share the tokens of equal first keys
    prompt: Prompt | None  # that the branch begins with; None for a conversation that was written anew
    offset: int  # response token j stands at index j - offset
    predicted: np.ndarray  # the response tokens j that are predicted here
    targets: np.ndarray  # their ids
    segments: list[Segment]  # of the response, those in this branch

    @property
    def media_at(self) -> int | None:
        """Index of the first token of the response's first segment with images; None if it has none."""
        at = 0 if self.prompt is None else len(self.prompt.ids)
        for segment in self.segments:
            if segment.media is not None:
                return at
            at += len(segment.ids)
        return None

    @property
    def response_media(self) -> Media | None:
        """Images and videos of the response in this branch."""
        from whet.model.media import join_media

        return join_media(segment.media for segment in self.segments)


def is_episode(sample: Sample) -> bool:
    """Return True if others than the policy wrote a part of the response."""
    return not all(segment.by_model for segment in sample.segments)


class Branches:
    """Reads samples as branches; remembers prompts, whose tokens are converted once."""

    def __init__(self) -> None:
        self._prompts: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # ids and keys by id() of the prompt
        self._tags = 0

    def of(self, samples: Sequence[Sample]) -> list[Branch]:
        """Return the branches of all samples in order; samples without a token have none."""
        return [branch for row, sample in enumerate(samples) if sample.ids for branch in self._of_sample(row, sample)]

    def _of_sample(self, row: int, sample: Sample) -> Iterator[Branch]:
        starts = [at for at, segment in enumerate(sample.segments) if segment.restart]
        if not starts:
            response = np.array(sample.ids, dtype=np.int64)
            # The last token of a response predicts nothing and is left out of the row.
            yield self._branch(row, sample.prompt, sample.segments, 0, response, np.arange(len(response)), 1)
            return
        first = 0
        for begin, end in zip([0, *starts], [*starts, len(sample.segments)]):
            segments = sample.segments[begin:end]
            response = np.array([token for segment in segments for token in segment.ids], dtype=np.int64)
            drawn = np.flatnonzero([segment.by_model for segment in segments for _ in segment.ids])
            drawn = drawn[drawn > 0] if begin else drawn  # the first token of all has none before it
            # Nothing is predicted behind the last token that was drawn; images are read whole.
            shown = any(segment.media is not None for segment in segments)
            left_out = 1 if shown else len(response) - int(drawn[-1]) if len(drawn) else len(response)
            if len(drawn):
                prompt = None if begin else sample.prompt
                yield self._branch(row, prompt, segments, first, response, drawn, left_out)
            first += len(response)

    def _branch(
        self,
        row: int,
        prompt: Prompt | None,
        segments: list[Segment],
        first: int,
        response: np.ndarray,
        predicted: np.ndarray,
        left_out: int,
    ) -> Branch:
        kept, targets = response[: len(response) - left_out], response[predicted]
        keys, at = kept, 0
        for segment in segments:
            if segment.media is not None:  # other samples show other images, even where their tokens are equal
                keys = kept.copy()
                keys[at:] += self._tag() * _TAG
                break
            at += len(segment.ids)
        if prompt is None:
            return Branch(row, kept, keys, None, first, first + predicted, targets, segments)
        ids, prompt_keys = self._prompt(prompt)
        whole = np.concatenate([ids, kept])
        all_keys = whole if prompt_keys is ids and keys is kept else np.concatenate([prompt_keys, keys])
        return Branch(row, whole, all_keys, prompt, first - len(ids), first + predicted, targets, segments)

    def _prompt(self, prompt: Prompt) -> tuple[np.ndarray, np.ndarray]:
        if id(prompt) not in self._prompts:
            ids = np.array(prompt.ids, dtype=np.int64)
            # Images are compared as objects: the prompts of a group are one.
            self._prompts[id(prompt)] = (ids, ids if prompt.media is None else ids + self._tag() * _TAG)
        return self._prompts[id(prompt)]

    def _tag(self) -> int:
        self._tags += 1
        return self._tags
