"""The loop: admit, decode, postprocess; called in batches by the trainer and one by one by agents and servers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from collections.abc import Sequence as Seq

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.fused import has_kernels
from whet.model.vision import check_prompt
from whet.rollout.engine import Piece, Progress, SamplingParams, Weights
from whet.rollout.engines.native.runner import Drawn, ModelRunner, Runner
from whet.rollout.engines.native.scheduler import Scheduler
from whet.rollout.engines.native.sequence import Request, Sequence
from whet.rollout.engines.native.stop import StopCheck
from whet.rollout.engines.native.streaming import Growth
from whet.rollout.uniforms import stream_keys
from whet.types import Prompt, Sample


class NativeEngine:
    """Continuous batching on the learner's weights. Requests join and leave between any two tokens.

    One thread steps at a time: `generate` steps in the caller's thread, `sample` starts a background thread that steps
    while anything is unfinished. Both may be in use at once; each step serves all requests.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 8192,
        max_model_len: int | None = None,
        memory_share: float = 0.6,
        eager: bool = False,
    ) -> None:
        """`max_model_len` and `memory_share` size the cache of a CUDA device, where `eager` does without graphs."""
        self.version = 0
        self._runner = _runner_for(model, max_num_seqs, end_ids, max_model_len, memory_share, eager)
        self._scheduler = Scheduler(max_num_seqs)
        self._stop = StopCheck(tokenizer, end_ids)
        self._prefill_tokens = max_num_batched_tokens
        self._stepping = threading.Lock()  # held during a step: the running sequences and the cache
        self._queue = threading.Lock()  # held for moments: new and leaving requests
        self._new: list[Request] = []
        self._leaving: list[Request] = []
        self._driver: threading.Thread | None = None

    def generate(
        self,
        prompts: Seq[Prompt],
        params: SamplingParams,
        sample_ids: Seq[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """n samples for each prompt, in the order of the prompts."""
        ids = range(0, len(prompts) * params.n, params.n) if sample_ids is None else sample_ids
        requests: list[Request] = []
        try:
            for prompt, sample_id in zip(prompts, ids, strict=True):
                requests.append(self.submit(prompt, params, sample_id))
            while unfinished := sum(r.unfinished for r in requests):
                self.step()
                ended = unfinished - sum(r.unfinished for r in requests)
                if progress is not None and ended:
                    progress(ended)
        except BaseException:
            for request in requests:
                self.abort(request)
            raise
        for request in requests:
            request.raise_error()
        return [s for r in requests for s in r.samples(self.version)]

    async def sample(self, prompt: Prompt, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """n samples of one prompt; joins whatever is being decoded, leaves when cancelled."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():  # it is when the caller was cancelled
                done.set_result(None)

        def finished(request: Request) -> None:
            if request.unfinished == 0:
                with contextlib.suppress(RuntimeError):  # the caller's loop has closed: nobody waits any more
                    loop.call_soon_threadsafe(wake)

        request = self.submit(prompt, params, sample_id, finished)
        self._drive()
        try:
            await done
        finally:
            if request.unfinished:  # cancelled
                self.abort(request)
        request.raise_error()
        return request.samples(self.version)

    async def stream(
        self, prompts: Seq[Prompt], params: SamplingParams, sample_ids: Seq[int] | None = None
    ) -> AsyncIterator[Piece]:
        """The n samples of each prompt as they are written, more at a time for a slow reader; leaves when closed."""
        ids = range(0, len(prompts) * params.n, params.n) if sample_ids is None else sample_ids
        grown = Growth(asyncio.get_running_loop())
        requests: list[Request] = []
        try:
            for prompt, sample_id in zip(prompts, ids, strict=True):
                requests.append(self.submit(prompt, params, sample_id, on_tokens=grown))
            self._drive()
            async for piece in grown.pieces(requests):
                yield piece
        finally:
            for request in requests:
                if request.unfinished:
                    self.abort(request)
                    self._drive()  # somebody must let it go, though nobody else may be asking

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, no token is drawn, so that the weights can be changed."""
        with self._stepping:
            yield

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        sample_id: int = 0,
        on_finish: Callable[[Request], None] | None = None,
        on_tokens: Callable[[], None] | None = None,
    ) -> Request:
        """Queue a prompt's n samples; some later `step` finishes them."""
        # Checked here, because one bad prompt inside a step would cost every request its samples.
        if not prompt.ids or min(prompt.ids) < 0 or max(prompt.ids) >= self._runner.vocab_size:
            last = self._runner.vocab_size - 1
            raise UserError(f"{prompt.uid}: a prompt is one or more token ids from 0 to {last}; is this its tokenizer?")
        check_prompt(self._runner.model, prompt)
        if params.top_logprobs and not self._runner.reports_tops:
            raise UserError(
                "top_logprobs: on a GPU the native engine knows the log-prob of the token it wrote and not those of "
                "others; ask for 0"
            )
        keys = stream_keys(params.seed, torch.arange(params.n) + sample_id).tolist()
        request = Request(prompt, params, unfinished=params.n, on_finish=on_finish, on_tokens=on_tokens)
        request.sequences = [Sequence(request, i, key) for i, key in enumerate(keys)]
        with self._queue:
            self._new.append(request)
        return request

    def abort(self, request: Request) -> None:
        """Let a request leave; its unfinished sequences end as "abort" with what they have."""
        with self._queue:
            self._leaving.append(request)

    @torch.no_grad()  # not inference_mode: the model may cache tensors that training uses too
    def step(self) -> bool:
        """Bring every running sequence one token further; False when there was nothing to do.

        When it fails, every request ends with that error: a step that broke off half-way cannot be taken up again.
        """
        with self._stepping:
            try:
                return self._step()
            except BaseException as error:
                self._fail_all(error)
                raise

    def _step(self) -> bool:
        self._join_and_leave()
        scheduler, runner = self._scheduler, self._runner
        if requests := scheduler.to_prefill(self._prefill_tokens, runner.reserve):
            runner.prefill(requests)
        while admitted := scheduler.admit(runner.fits):
            self._append(runner.admit(admitted))
            self._remove_finished()  # a first token may already be the end
        if not scheduler.running:
            return bool(requests)
        self._append(runner.decode(scheduler.running))
        self._remove_finished()
        return True

    def release(self) -> None:
        """Give the cache's memory back unless something is being decoded; the next step takes what it needs."""
        with self._stepping:
            self._join_and_leave()
            if not self._scheduler.running:
                self._runner.release()

    def load(self, weights: Weights, version: int) -> None:
        """Note the version: the model is the learner's own, so its weights are here already."""
        self.version = version

    def close(self) -> None:
        """Nothing was started."""

    def _append(self, drawn: list[Drawn]) -> None:
        """Add tokens to the sequences that go on, and see which are finished by them."""
        for sequence, tokens, log_probs, tops in (each for some in drawn for each in some):
            if sequence.finish is not None or not tokens:  # a runner that looks ahead draws past the end
                continue
            taken, finish = self._stop(sequence, tokens)
            sequence.ids += tokens[:taken]
            sequence.tops += tops[:taken]
            sequence.log_probs += log_probs[:taken]
            sequence.finish = finish  # last: whoever streams takes it for a promise that all tokens are there
            if sequence.finish is not None:
                self._finished(sequence)
            elif sequence.request.on_tokens is not None:
                sequence.request.on_tokens()

    def _finished(self, sequence: Sequence) -> None:
        request = sequence.request
        request.unfinished -= 1
        self._runner.finished(sequence)
        if request.on_finish is not None:
            request.on_finish(request)
        if request.on_tokens is not None:
            request.on_tokens()

    def _remove_finished(self) -> None:
        before = len(self._scheduler.running)
        moves = self._scheduler.remove_finished()
        if len(self._scheduler.running) < before:
            self._runner.rearrange(moves, len(self._scheduler.running))

    def _join_and_leave(self) -> None:
        with self._queue:
            new, self._new = self._new, []
            leaving, self._leaving = self._leaving, []
        for request in new:
            self._scheduler.add(request)
        for request in leaving:
            for sequence in request.sequences:
                if sequence.finish is None:
                    sequence.finish = "abort"
                    self._finished(sequence)
        if leaving:
            waiting = self._scheduler.waiting
            self._scheduler.waiting = type(waiting)(s for s in waiting if s.finish is None)
            self._remove_finished()

    def _drive(self) -> None:
        """See that a background thread is stepping."""
        with self._queue:
            if self._driver is None or not self._driver.is_alive():
                self._driver = threading.Thread(target=self._step_until_idle, name="whet-engine", daemon=True)
                self._driver.start()

    def _step_until_idle(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # whoever waits was given it
                self.step()
            # Both locks: another thread inside a step may hold requests that are in none of these lists.
            with self._stepping, self._queue:
                scheduler = self._scheduler
                if not (self._new or self._leaving or scheduler.waiting or scheduler.running):
                    self._driver = None
                    return

    def _fail_all(self, error: BaseException) -> None:
        """End every request with this error."""
        self._join_and_leave()
        for sequence in (*self._scheduler.running, *self._scheduler.waiting):
            if sequence.finish is None:
                sequence.finish = "abort"
                sequence.request.error = error
                self._finished(sequence)
        self._scheduler.running.clear()
        self._scheduler.waiting.clear()
        self._runner.reset()


def _runner_for(
    model: PreTrainedModel,
    max_num_seqs: int,
    end_ids: frozenset[int],
    max_model_len: int | None,
    memory_share: float,
    eager: bool,
) -> Runner:
    """Pages and captured graphs where the device has them, slots elsewhere."""
    if not has_kernels(model):
        return ModelRunner(model)
    if model.device.type != "cuda":  # triton's interpreter
        from whet.rollout.engines.native.paged import PagedRunner

        return PagedRunner(model, max_num_seqs, end_ids, max_model_len)
    from whet.rollout.engines.native.graph import GraphRunner  # imports triton, which not every machine has

    return GraphRunner(model, max_num_seqs, end_ids, max_model_len, memory_share, eager)
