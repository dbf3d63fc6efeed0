"""Where a response begins: at a prompt, or behind the segments of a sample that is continued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.model.media import join_media
from whet.rollout.engine import Start
from whet.types import FinishReason, Prompt, Sample, Segment


@dataclass(frozen=True, slots=True)
class Begun:
    """A start as engines read it: one row of tokens, and what is known of them."""

    prompt: Prompt  # of the sample
    prefix: Prompt  # all tokens that are read before the first new one, with their images; the prompt itself at first
    segments: tuple[Segment, ...] = ()  # behind the prompt
    group: int | None = None
    index: int = 0  # of the sample that is continued

    @property
    def written(self) -> int:
        """Response tokens before the first new one: its position."""
        return len(self.prefix.ids) - len(self.prompt.ids)

    def sample(
        self,
        ids: list[int],
        log_probs: list[float],
        finish: FinishReason,
        index: int,
        marks: Sequence[tuple[int, int]],
    ) -> Sample:
        """Return the sample with new tokens; `marks` are (first of `ids`, version that wrote from there on)."""
        ends = [*(start for start, _ in marks[1:]), len(ids)]
        segments = list(self.segments)
        for (start, version), end in zip(marks, ends):
            if start == end and segments:  # nothing was written before an abort, or between two versions
                continue
            added = Segment(ids[start:end], True, log_probs[start:end], version)
            if segments and _goes_on(segments[-1], added):
                last = segments.pop()
                added = replace(last, ids=last.ids + added.ids, log_probs=last.log_probs + added.log_probs)
            segments.append(added)
        return Sample(self.prompt, segments, finish, self.index + index, self.group)


def begin(start: Start) -> Begun:
    """Read a prompt or a sample."""
    if isinstance(start, Prompt):
        return Begun(start, start)
    prompt, segments = start.prompt, tuple(start.segments)
    media = join_media([prompt.media, *(segment.media for segment in segments)])
    return Begun(prompt, replace(prompt, ids=prompt.ids + start.ids, media=media), segments, start.group, start.index)


def _goes_on(last: Segment, added: Segment) -> bool:
    """True if the policy writes on where it was interrupted: such tokens are one segment."""
    same = last.by_model and last.version == added.version and len(last.log_probs) == len(last.ids)
    return same and last.reward is None and last.media is None
