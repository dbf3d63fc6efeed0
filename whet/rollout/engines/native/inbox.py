"""Requests on their way into and out of the native engine's loop, from any thread."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch

from whet.rollout.engine import Begun, SamplingParams, Start, begin
from whet.rollout.engines.native.sequence import Request, Sequence
from whet.rollout.uniforms import stream_keys
from whet.types import Sample

if TYPE_CHECKING:
    from whet.rollout.engines.native.streaming import Reader


class Inbox(ABC):
    """Requests that join and leave with the next step, in the order in which callers asked for it."""

    def __init__(self) -> None:
        self._queue = threading.Lock()  # held for moments: the inbox and the thread that steps
        self._inbox: list[Callable[[], None]] = []
        self._beginning: list[Request] = []  # requests that wait for others that begin with them

    @abstractmethod
    def _check(self, begun: Begun, params: SamplingParams) -> None:
        """Raise a `UserError` for what cannot be sampled."""

    @abstractmethod
    def _drive(self) -> None:
        """See that a background thread is stepping."""

    @abstractmethod
    def _join(self, request: Request) -> None:
        """Take a request in, between two steps."""

    @abstractmethod
    def _leave(self, sequences: list[Sequence]) -> None:
        """Let sequences go, between two steps."""

    @abstractmethod
    def _abort(self, sample_ids: frozenset[int] | None) -> None:
        """End samples of some ids, or all, between two steps."""

    @abstractmethod
    def _forget(self, key: tuple[int, int] | None = None) -> None:
        """Give back what was kept of a sample by its (seed, sample id), or of all, between two steps."""

    def submit(
        self,
        prompt: Start,
        params: SamplingParams,
        sample_id: int = 0,
        on_finish: Callable[[Request], None] | None = None,
    ) -> Request:
        """Queue n samples of a prompt, or n continuations of a sample; some later `step` finishes them."""
        request = self.request(prompt, params, sample_id, on_finish)
        with self._queue:
            self._inbox.append(partial(self._join, request))
        return request

    def request(
        self,
        prompt: Start,
        params: SamplingParams,
        sample_id: int = 0,
        on_finish: Callable[[Request], None] | None = None,
        reader: Reader | None = None,
    ) -> Request:
        """Return a request that is in order and not queued."""
        begun = begin(prompt)
        self._check(begun, params)
        keys = stream_keys(params.seed, torch.arange(params.n) + sample_id, begun.written).tolist()
        request = Request(begun.prefix, params, unfinished=params.n, on_finish=on_finish, reader=reader)
        request.sequences = [Sequence(request, i, key) for i, key in enumerate(keys)]
        request.begun, request.sample_id = begun, sample_id
        request.routed = prompt.routing if isinstance(prompt, Sample) else None
        return request

    def begin(self, requests: Iterable[Request]) -> None:
        """Queue requests that are in order; a background thread writes them."""
        with self._queue:
            self._inbox += [partial(self._join, request) for request in requests]
        self._drive()

    def leave(self, requests: Iterable[Request]) -> None:
        """Let requests of the background thread go."""
        for request in requests:
            if request.unfinished:
                self.withdraw(request)
                self._drive()  # somebody must let it go, though nobody else may be asking

    def submit_together(self, request: Request, later: Callable[[Callable[[], None]], object]) -> None:
        """Queue a request with all others that come before `later` calls back: one step reads the prompts of all."""
        with self._queue:
            self._beginning.append(request)
        later(self._begin_together)

    def _begin_together(self) -> None:
        with self._queue:
            self._join_beginning()
        self._drive()

    def _join_beginning(self) -> None:
        self._inbox += [partial(self._join, request) for request in self._beginning]
        self._beginning = []

    def withdraw(self, request: Request) -> None:
        """Let a request leave; its unfinished sequences end as "abort" with what they have."""
        with self._queue:
            if request in self._beginning:
                self._beginning.remove(request)
            else:
                self._inbox.append(partial(self._leave, request.sequences))

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """End samples that are being written, all or those of some ids; their callers get what was written."""
        with self._queue:
            self._join_beginning()
            self._inbox.append(partial(self._abort, None if sample_ids is None else frozenset(sample_ids)))

    def forget(self, seed: int, sample_id: int) -> None:
        """Give back what was kept of a sample, with the next step."""
        with self._queue:
            self._join_beginning()
            self._inbox.append(partial(self._forget, (seed, sample_id)))

    def _join_and_leave(self) -> None:
        with self._queue:
            inbox, self._inbox = self._inbox, []
        for change in inbox:
            change()
