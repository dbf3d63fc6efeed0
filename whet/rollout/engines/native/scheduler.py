"""Requests, the responses being written for them, and which of those run in which slot.

Running sequences always occupy slots 0..B-1. When one finishes, a waiting sequence takes its slot; when none waits,
the last slot moves into the hole. A prompt is prefilled when the first of its samples gets near a slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.rollout.engine import Begun, SamplingParams
from whet.rollout.engines.native.pages import PromptPages
from whet.types import FinishReason, Prompt, Sample


@dataclass(slots=True, eq=False)
class Sequence:
    """One response: waiting for a slot, running in one, or finished."""

    request: Request
    index: int  # which of the prompt's n samples
    key: int  # random stream of this sample
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)  # likeliest tokens, where they are asked for
    finish: FinishReason | None = None
    marks: list[tuple[int, int]] = field(default_factory=list)  # (first token, version of the weights from there on)
    pages: list[int] = field(default_factory=list)  # of a paged cache, its own
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
    prefilled: Prefilled | PromptPages | None = None  # where its prompt lies, from prefill on
    offset: int = 0  # of positions from indices behind the prompt: an image has other positions than it has tokens
    last_offset: int = 0  # the same of the prompt's last token
    unfinished: int = 0
    on_finish: Callable[[Request], None] | None = None  # called as each of its sequences ends
    on_tokens: Callable[[], None] | None = None  # called as any of its sequences grows or ends
    error: BaseException | None = None  # what kept it from being finished
    sample_id: int = 0  # of the first sequence; the others follow
    begun: Begun | None = None  # the sample that is continued; None for a prompt
    kept: Kept | None = None  # what need not be computed again of the prompt

    def raise_error(self) -> None:
        """Tell the caller what kept the request from being finished, if anything did."""
        if isinstance(self.error, Exception):
            raise self.error
        if self.error is not None:  # Ctrl-C in the thread that was stepping is not the caller's own
            raise RuntimeError("sampling was interrupted") from self.error

    def samples(self, version: int) -> list[Sample]:
        """The finished sequences as samples; `version` is that of sequences without marks."""
        begun = self.begun or Begun(self.prompt, self.prompt)
        return [
            begun.sample(s.ids, s.log_probs, s.finish or "abort", s.index, s.marks or [(0, version)])
            for s in self.sequences
        ]


class Scheduler:
    """First come, first served, over `max_num_seqs` slots."""

    def __init__(self, max_num_seqs: int) -> None:
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # index = slot

    def add(self, request: Request) -> None:
        """Queue all sequences of a request."""
        self.waiting.extend(request.sequences)

    def to_prefill(self, token_budget: int, reserve: Callable[[Request], bool]) -> list[Request]:
        """Requests whose sequences are next for the free slots and whose prompts were not read; memory is reserved."""
        requests: list[Request] = []
        tokens = 0
        for sequence in list(self.waiting)[: self.max_num_seqs - len(self.running)]:
            request = sequence.request
            if request.prefilled is not None or request in requests:
                continue
            tokens += len(request.prompt.ids)
            if (requests and tokens > token_budget) or not reserve(request):
                break
            requests.append(request)
        return requests

    def admit(self, fits: Callable[[Sequence], bool]) -> list[tuple[int, Sequence]]:
        """Give free slots to waiting sequences whose prompt is prefilled; (slot, sequence) of each."""
        admitted = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            if self.waiting[0].request.prefilled is None or not fits(self.waiting[0]):
                break
            sequence = self.waiting.popleft()
            admitted.append((len(self.running), sequence))
            self.running.append(sequence)
        return admitted

    def remove_finished(self) -> list[tuple[int, int, Sequence]]:
        """Drop finished sequences; (source slot, target slot, sequence) of every move that keeps slots dense."""
        moves = []
        slot = 0
        while slot < len(self.running):
            if self.running[slot].finish is None:
                slot += 1
                continue
            last = self.running.pop()
            if slot < len(self.running):
                self.running[slot] = last
                if last.finish is None:
                    moves.append((len(self.running), slot, last))
        return moves


class StopCheck:
    """Decides how many of the tokens that were drawn a response takes, and whether it is finished."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids

    def __call__(self, sequence: Sequence, tokens: list[int]) -> tuple[int, FinishReason | None]:
        """Return how many of the drawn tokens belong to the sequence, and why it ends with them (None: it goes on)."""
        params = sequence.request.params
        room = params.max_tokens - len(sequence.ids)
        ends = frozenset(params.stop_ids) if params.stop_ids or params.ignore_eos else self._end_ids
        if params.stop_ids and not params.ignore_eos:
            ends |= self._end_ids
        if not params.stop and not any(token in ends for token in tokens):
            return (room, "length") if len(tokens) >= room else (len(tokens), None)
        # A token holds at least one byte, so the tail that can hold a stop string is as many tokens as it has bytes;
        # a few more keep a character that spans tokens whole.
        reach = max((len(s.encode()) for s in params.stop), default=0) + 8
        tail = sequence.ids[-reach:]
        for taken, token in enumerate(tokens, start=1):
            tail = [*tail[-reach:], token]
            if token in ends or self._wrote(tail, params.stop):
                return taken, "stop"
            if taken >= room:
                return taken, "length"
        return len(tokens), None

    def _wrote(self, tail: list[int], stop: tuple[str, ...]) -> bool:
        text = self._tokenizer.decode(tail, skip_special_tokens=False) if stop else ""
        return any(s in text for s in stop)
