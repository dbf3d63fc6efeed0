"""Samples while vLLM writes them: replies in, whole responses or pieces of them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from typing import Any

from whet.errors import UserError
from whet.rollout.engine import Piece, SamplingParams
from whet.rollout.engines.native.sequence import Request
from whet.rollout.engines.native.sequence import Sequence as Response
from whet.rollout.engines.native.streaming import Growth
from whet.rollout.stop import StopCheck
from whet.types import Prompt

Reply = dict[str, Any]


def append(response: Response, reply: Reply, stop: StopCheck) -> None:
    """Add what vLLM wrote to a response; UserError where it refused the prompt."""
    prompt, params = response.request.prompt, response.request.params
    if "error" in reply:
        raise UserError(f"{prompt.uid}: vLLM refused the prompt: {reply['error']}")
    if response.finish is not None:
        return
    ids, log_probs, finish = reply["ids"], reply["log_probs"], reply["finish"]
    if params.stop:  # vLLM spells tokens in its own way: whet's check has the last word on where it ends
        taken, found = stop(response, ids)
        ids, log_probs, finish = ids[:taken], log_probs[:taken], found or finish
    response.ids += ids
    response.log_probs += log_probs
    response.finish = finish  # last: whoever reads it in another thread finds all tokens there


class Stream:
    """The samples of some prompts, n of each: a channel's thread adds to them, and one event loop reads them."""

    def __init__(self, prompts: Sequence[Prompt], params: SamplingParams, stop: StopCheck) -> None:
        """Made in the event loop that reads."""
        self._stop = stop
        self._grown = Growth(asyncio.get_running_loop())
        self._requests = [Request(prompt, params) for prompt in prompts]
        for request in self._requests:
            request.sequences = [Response(request, index, 0) for index in range(params.n)]
        self._responses = [response for request in self._requests for response in request.sequences]
        self._grown.follow(self._requests)

    def add(self, at: int, reply: Reply) -> None:
        """Take what was added to sample `at` of all."""
        response = self._responses[at]
        try:
            append(response, reply, self._stop)
        except Exception as error:  # the reader's to raise: the channel's thread has others to serve
            response.request.error = error
        self._grown()

    def end(self, at: int, reply: Future[Reply]) -> None:
        """Take the last of sample `at`, or what kept it from being finished."""
        error = reply.exception()
        if error is None:
            self.add(at, reply.result())
            return
        self._responses[at].request.error = error
        self._grown()

    def pieces(self) -> AsyncIterator[Piece]:
        """Yield additions until every sample has ended."""
        return self._grown.pieces()
