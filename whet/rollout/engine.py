"""The `Engine` protocol: prompts in, samples out, at once or one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import Tensor

from whet.errors import UserError
from whet.rollout.spec import Capabilities
from whet.types import FinishReason, Prompt, Sample, Segment

KEPT_CACHE = 0.2  # share of a GPU's memory that an engine may hold on to while others train
_SMALL_MODEL = 0.02  # share of a GPU's memory: beside larger weights the update needs all that the cache can lend
Progress = Callable[[int], None]  # called with the number of samples that just finished
Start = Prompt | Sample  # what to write behind: a prompt, or a sample that is to be continued
Weights = Callable[[], Iterator[tuple[str, Tensor]]]  # tensors by their names in a Hugging Face folder, read anew


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters. Filters apply in this order: temperature, top_k, top_p, min_p."""

    n: int = 1
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = -1  # -1 keeps every token
    min_p: float = 0.0  # drop tokens less likely than min_p times the likeliest
    max_tokens: int = 512  # most tokens that one call writes; of a continued sample, those of the new turn
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    seed: int = 0
    stop_ids: tuple[int, ...] = ()  # tokens that end a response besides the model's own; not every engine can
    top_logprobs: int = 0  # likeliest tokens to report at every place; not every engine can
    keep: bool = False  # the sample will be continued: engines with `prefix_reuse` hold on to its keys and values

    def __post_init__(self) -> None:
        for name, right, range_ in (
            ("n", self.n >= 1, "1 or more"),
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k == -1 or self.top_k >= 1, "1 or more, or -1 for every token"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("stop", "" not in self.stop, "texts that are not empty"),
            ("top_logprobs", self.top_logprobs >= 0, "0 or more"),
        ):
            if not right:
                raise UserError(f"sampling parameter {name}={getattr(self, name)!r} must be {range_}")

    @property
    def filters(self) -> bool:
        """True if some tokens can be cut from the distribution."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that were added to one response since the piece before."""

    prompt: int  # which of the prompts
    index: int  # which of the prompt's n samples
    ids: list[int]
    log_probs: list[float]
    tops: list[list[tuple[int, float]]]  # the likeliest tokens at each place, where they were asked for
    finish: FinishReason | None  # None while it goes on


class EngineGoneError(UserError):
    """An engine ended by itself, and can be asked for nothing more; the message says how."""


class Engine(Protocol):
    """Writes responses with the current policy.

    A start is a prompt, or a sample that is continued: the new tokens form a segment behind those it has, and positions
    are counted from the first token of the response, whoever wrote it. The given sample is not changed.

    Sample ids name samples for the random numbers: each is a function of (seed, sample id, position), so that the same
    (seed, sample id) writes the same response whatever else is in the batch, and a sample that was aborted and is
    continued under its id by the same weights becomes the one that it would have been. `sample_ids[i]` belongs to start
    i; its n samples take the ids that follow from it. Engines with a sampler of their own derive a seed from the three.

    `sample` and `stream` run in any event loop; the other methods block and may be called from any thread.
    """

    version: int  # number of updates that the weights have seen; stamped on every segment

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this engine."""
        ...

    @property
    def failure(self) -> str | None:
        """Return how the engine ended, if it did by itself; it takes no further requests then."""
        ...

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        ...

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start; they join what is being decoded, and leave it if the call is cancelled."""
        ...

    def stream(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each start as they are written; they leave when the iterator is closed.

        With `parts` false the caller has no use for parts of a sample: engines for which they are dear send it whole.
        """
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Keep any token from being drawn inside the context, so that weights can change.

        With `updates_in_flight` samples wait and go on afterwards; else they are finished first, and new ones wait.
        """
        ...

    def load_weights(self, weights: Weights, version: int) -> None:
        """Sample with these weights from now on, and call them `version`.

        While samples are being written it must be called inside `pause`.
        """
        ...

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """End samples that are being written, all or those of some ids; who waits is given them with finish "abort".

        They hold what was written if the engine has `partial`, and can be continued. Engines that cannot interrupt
        what they do finish it.
        """
        ...

    def release(self) -> None:
        """Give back the memory held for sampling, kept samples included, until the next call."""
        ...

    def close(self) -> None:
        """End everything that the engine started; it is not used afterwards."""
        ...


@runtime_checkable
class KeepsSamples(Protocol):
    """An engine with `prefix_reuse`, which can be told that a kept sample will not be continued."""

    def forget(self, seed: int, sample_id: int) -> None:
        """Give back what was kept of a sample; nothing that is being written is touched."""
        ...


def kept_cache(total: int, weights: int) -> int:
    """Bytes of cache that an engine may hold on to while others train on a device of `total` bytes.

    A function of sizes that a resumed run has too, so that the update can count on it. `weights` are the bytes of the
    policy: beside a small one a cache that is not lent saves the time to map it; beside a large one all is lent.
    """
    return round(KEPT_CACHE * total) if weights <= _SMALL_MODEL * total else 0


def ids_of(prompts: Sequence[Start], params: SamplingParams, sample_ids: Sequence[int] | None) -> Sequence[int]:
    """Return the id of each start's first sample; they count up from 0 where none are given."""
    return range(0, len(prompts) * params.n, params.n) if sample_ids is None else sample_ids


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
        return sum(len(segment.ids) for segment in self.segments)

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
    from whet.model.media import join_media

    ids, media, read = prompt.ids, prompt.media, segments
    for at, segment in enumerate(segments):
        if segment.restart:  # the conversation as it was written anew
            ids, media, read = [], None, segments[at:]
    prefix = replace(
        prompt,
        ids=ids + [token for segment in read for token in segment.ids],
        media=join_media([media, *(segment.media for segment in read)]),
    )
    return Begun(prompt, prefix, segments, start.group, start.index)


def _goes_on(last: Segment, added: Segment) -> bool:
    """True if the policy writes on where it was interrupted: such tokens are one segment."""
    same = last.by_model and last.version == added.version and len(last.log_probs) == len(last.ids)
    return same and last.reward is None and last.media is None
