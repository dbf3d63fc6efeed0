"""A request, the responses being written for it, and the row of their tokens that a prefill reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.model.modality import vision_of
from whet.rollout.engine import Begun, SamplingParams
from whet.types import FinishReason, Prompt, Sample

if TYPE_CHECKING:
    from whet.model.vision import RowMedia, Vision
    from whet.rollout.engines.native.pages import KeptPages, PromptPages
    from whet.rollout.engines.native.streaming import Reader


@dataclass(slots=True, eq=False)
class Sequence:
    """One response: waiting for a slot, running in one, or finished.

    A waiting sequence has tokens if it was preempted. They stay as they were drawn; their keys and values are computed
    again before it runs.
    """

    request: Request
    index: int  # which of the prompt's n samples
    key: int  # random stream of this sample
    arrival: int = 0  # counts up over all sequences of the engine: the larger, the younger
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)  # likeliest tokens, where they are asked for
    routes: list[np.ndarray] = field(default_factory=list)  # (tokens, layers, K) experts of what it read, if recorded
    finish: FinishReason | None = None
    marks: list[tuple[int, int]] = field(default_factory=list)  # (first token, version of the weights from there on)
    pages: list[int] = field(default_factory=list)  # of a paged cache, its own
    reading: Reading | None = None  # its own tokens that must be read again before it can run
    ahead: int = 0  # tokens that the device was told to draw and the host has not read

    @property
    def length(self) -> int:
        """Prompt and response tokens so far."""
        return len(self.request.prompt.ids) + len(self.ids)


@dataclass(slots=True, eq=False)
class Prefilled:
    """A prompt's keys and values, and the logits of its first response token."""

    kv: Tensor  # (layers, 2, P, heads, head_dim)
    logits_V: Tensor


@dataclass(slots=True, eq=False)
class Kept:
    """Keys and values of a sample that will be continued, of all its tokens but the last."""

    ids: list[int]  # prompt and response
    kv: Tensor  # (layers, 2, len(ids), heads, head_dim)


@dataclass(slots=True, eq=False)
class Request:
    """A prompt, how to sample from it, and its n sequences."""

    prompt: Prompt  # all tokens to read, those of a sample that is continued included
    params: SamplingParams
    sequences: list[Sequence] = field(default_factory=list)
    prefilled: Prefilled | PromptPages | None = None  # where its prompt lies
    reading: Reading | None = None  # prompt tokens that must be read before its sequences can run
    offset: int = 0  # of positions from indices behind the prompt: an image has other positions than it has tokens
    last_offset: int = 0  # the same of the prompt's last token
    unfinished: int = 0
    on_finish: Callable[[Request], None] | None = None  # called as each of its sequences ends
    reader: Reader | None = None  # to be woken as any of its sequences grows or ends
    error: BaseException | None = None  # what kept it from being finished
    sample_id: int = 0  # of the first sequence; the others follow
    begun: Begun | None = None  # the sample that is continued; None for a prompt
    kept: Kept | KeptPages | None = None  # what need not be computed again of the prompt
    routes: list[np.ndarray] = field(default_factory=list)  # experts of the prompt tokens that were read, if recorded
    routes_from: int = 0  # the first token that `routes` begin with
    routed: np.ndarray | None = None  # experts of the sample that is continued, as they were recorded

    def raise_error(self) -> None:
        """Tell the caller what kept the request from being finished, if anything did."""
        if isinstance(self.error, Exception):
            raise self.error
        if self.error is not None:  # Ctrl-C in the thread that was stepping is not the caller's own
            raise RuntimeError("sampling was interrupted") from self.error

    def samples(self, version: int) -> list[Sample]:
        """The finished sequences as samples; `version` is that of sequences without marks."""
        begun = self.begun or Begun(self.prompt, self.prompt)
        samples = []
        for s in self.sequences:
            sample = begun.sample(s.ids, s.log_probs, s.finish or "abort", s.index, s.marks or [(0, version)])
            if (self.routes or s.routes) and not any(segment.restart for segment in sample.segments):
                from whet.model.routing import joined_routing  # models without experts need none of it

                tokens = len(sample.prompt.ids) + len(sample.ids) - 1
                sample.routing = joined_routing([*self.routes, *s.routes], self.routes_from, self.routed, tokens)
            samples.append(sample)
        return samples

    def note_routes(self, chunk: Chunk, routing_NLK: np.ndarray) -> None:
        """Keep the experts of a chunk of the prompt; a response that is read again has its own from before."""
        if chunk.reading.sequence is None:
            if not self.routes or chunk.reading.at == 0:  # 0 once more: read anew after it was evicted
                self.routes, self.routes_from = [], chunk.reading.at
            self.routes.append(routing_NLK)


@dataclass(slots=True, eq=False)
class Reading:
    """Tokens that prefills have still to read: a prompt, or what a preempted sequence had written.

    Indices count the tokens of prompt and response in one row.
    """

    request: Request
    sequence: Sequence | None  # whose response it is; None for the prompt
    at: int  # the next token
    stop: int  # behind the last token

    @property
    def divisible(self) -> bool:
        """True if it may be read in parts: images of a prompt are embedded in one pass."""
        return self.sequence is not None or self.request.prompt.media is None

    def ids(self, start: int, stop: int) -> list[int]:
        """Tokens [start, stop) of the row."""
        prompt = self.request.prompt.ids
        if stop <= len(prompt) or self.sequence is None:
            return prompt[start:stop]
        return (prompt + self.sequence.ids)[start:stop]

    def advance(self, stop: int) -> None:
        """Note that the tokens up to `stop` were read; after the last of them its owner has nothing left to read."""
        self.at = stop
        if stop == self.stop and self.sequence is not None:
            self.sequence.reading = None
        elif stop == self.stop:
            self.request.reading = None


class Chunk(NamedTuple):
    """Tokens [reading.at, stop) of a reading: what one prefill takes of it."""

    reading: Reading
    stop: int


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """Input of a prefill; all arrays are of the host."""

    ids_N: np.ndarray
    positions: np.ndarray  # (N,), or (3, N) where images give tokens a time and a place
    starts: np.ndarray  # of each chunk in the row
    lengths: np.ndarray
    media: RowMedia | None  # on the model's device; None where the row shows nothing


def lay_chunks(model: PreTrainedModel, chunks: list[Chunk], device: torch.device) -> ChunkRow:
    """Lay chunks into one row. Requests whose prompts begin in it learn how positions continue behind the prompt.

    Every chunk must have a token.
    """
    vision = vision_of(model)
    # 1. Where each chunk lies in the row.
    lengths = np.array([stop - reading.at for reading, stop in chunks])
    starts = lengths.cumsum() - lengths
    # 2. A prompt with images is one chunk; what it shows is embedded from the start of that chunk on.
    shown = [
        (start, reading.request.prompt)
        for (reading, _), start in zip(chunks, starts.tolist())
        if reading.sequence is None and reading.request.prompt.media is not None
    ]
    # 3. Positions, (axes, N).
    positions = np.empty((vision.axes if vision is not None and shown else 1, int(lengths.sum())), dtype=np.int64)
    for chunk, start, length in zip(chunks, starts, lengths):
        positions[:, start : start + length] = _positions(chunk, vision)
    media = vision.row_media(shown, device) if vision is not None and shown else None
    ids_N = np.concatenate([reading.ids(reading.at, stop) for reading, stop in chunks])
    return ChunkRow(ids_N, positions if len(positions) > 1 else positions[0], starts, lengths, media)


def _positions(chunk: Chunk, vision: Vision | None) -> np.ndarray:
    """(axes or 1, tokens) of one chunk."""
    (reading, stop), request = chunk, chunk.reading.request
    end = len(request.prompt.ids)
    if reading.sequence is None and vision is not None and request.prompt.media is not None:
        own, behind = vision.positions(request.prompt)
        request.last_offset = int(own[0, -1]) - (end - 1)
        request.offset = behind - end
        return own[:, reading.at : stop]
    at = np.arange(reading.at, stop)[None]
    # Behind images, positions differ from indices by an offset: one for the last prompt token, one for what follows.
    return at + np.where(at < end, request.last_offset, request.offset)
