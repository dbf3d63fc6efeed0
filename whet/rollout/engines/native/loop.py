"""The loop of the native engine: join and leave, make room, prefill, admit, decode, drop what finished.

Requests come from any thread. One thread steps at a time: a caller that waits, or a thread of the loop's own that runs
while anything is unfinished. Every step serves all requests.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.modality import check_prompt
from whet.rollout.engine import Begun, SamplingParams
from whet.rollout.engines.native.inbox import Inbox
from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.scheduler import Scheduler
from whet.rollout.engines.native.sequence import Kept, Request, Sequence
from whet.rollout.stop import StopCheck

if TYPE_CHECKING:
    from whet.rollout.engines.native.pages import KeptPages
    from whet.rollout.engines.native.runner_protocol import Runner


class StepLoop(Inbox):
    """Requests and the steps that write them."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        super().__init__()
        self.version = 0
        self._runner = runner
        self._scheduler = Scheduler(max_num_seqs)
        self._stop = StopCheck(tokenizer, end_ids)
        self._prefill_tokens = max_num_batched_tokens
        self._turnstile = threading.RLock()  # passed before each step, so that who pauses need not outrun who steps
        self._stepping = threading.RLock()  # held during a step: the running sequences and the cache
        self._kept: OrderedDict[tuple[int, int], Kept | KeptPages] = OrderedDict()  # by (seed, sample id), oldest first
        self._driver: threading.Thread | None = None
        self._mode: contextlib.AbstractContextManager[object] = contextlib.nullcontext()  # how the model computes
        self.preemptions = 0  # sequences that gave their memory to older ones, so far
        self.prefilled_tokens = 0  # tokens that prefills have read, so far

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Keep any token from being drawn inside the context; what is being written goes on afterwards."""
        with self._turnstile, self._stepping:
            yield

    @torch.no_grad()  # not inference_mode: the model may cache tensors that training uses too
    def step(self) -> bool:
        """Bring every running sequence one token further; False when there was nothing to do.

        When it fails, every request ends with that error: a step that broke off half-way cannot be taken up again.
        """
        with self._turnstile:
            self._stepping.acquire()
        try:
            with self._mode:
                return self._step()
        except BaseException as error:
            self._fail_all(error)
            raise
        finally:
            self._stepping.release()

    def _step(self) -> bool:
        scheduler, runner = self._scheduler, self._runner
        # 1. Requests that came or went since the last step.
        self._join_and_leave()
        # 2. Memory for the next tokens of all that run; the youngest leave where there is too little.
        self._make_room()
        # 3. Memory for those next in line, and a part of what must be read for them.
        if chunks := scheduler.to_prefill(self._prefill_tokens, runner.reserve):
            self.prefilled_tokens += sum(stop - reading.at for reading, stop in chunks)
            runner.prefill(chunks)
        # 4. Slots for those that have everything; a first token may already be the end.
        proceeded = bool(chunks)
        while admitted := scheduler.admit(runner.reserve):
            proceeded = True
            self._append(runner.admit(admitted))
            self._remove_finished()
        if not scheduler.running:
            return proceeded or self._clear_the_way()
        # 5. The next tokens of all that run.
        self._append(runner.decode(scheduler.running))
        self._remove_finished()
        return True

    def _make_room(self) -> None:
        """See that every running sequence has memory for its next tokens."""
        scheduler, runner = self._scheduler, self._runner
        if runner.grow(scheduler.running):
            return
        # 1. Read what is under way: it may end sequences, and a preempted one must have no token outstanding.
        self._append(runner.settle())
        self._remove_finished()
        if runner.grow(scheduler.running):
            return
        # 2. Take from those that wait, then from the youngest that run, until the others have some to spare.
        while scheduler.running and not runner.grow(scheduler.running, spare=True):
            if any(runner.evict(sequence) for sequence in reversed(scheduler.waiting)):
                continue
            youngest = scheduler.youngest()
            if len(scheduler.running) == 1:  # all memory is its own, and too little
                self._refuse(youngest.request)
                continue
            moves = scheduler.preempt(youngest)
            runner.evict(youngest)
            runner.rearrange(moves, len(scheduler.running))
            self.preemptions += 1

    def _clear_the_way(self) -> bool:
        """Nothing runs and nothing could be read: take memory from the youngest that wait; False if nothing waits."""
        waiting = self._scheduler.waiting
        if not waiting:
            return False
        others = (s for s in reversed(waiting) if s.request is not waiting[0].request or s.pages)
        if not any(self._runner.evict(sequence) for sequence in others if sequence is not waiting[0]):
            self._refuse(waiting[0].request)
        return True

    def _refuse(self, request: Request) -> None:
        """End a request that passed `check`, but for which others have left too little memory."""
        prompt, new = request.prompt, request.params.max_tokens
        request.error = UserError(
            f"{prompt.uid}: {len(prompt.ids)} prompt tokens and {new} new ones do not fit into the memory that is left "
            "for the key-value cache: give the GPU fewer things to hold, or lower data.max_response_length"
        )
        self._leave(request.sequences)

    def _check(self, begun: Begun, params: SamplingParams) -> None:
        """Raise a `UserError` for what cannot be sampled: inside a step it would cost every request its samples."""
        prompt = begun.prefix
        if not prompt.ids or min(prompt.ids) < 0 or max(prompt.ids) >= self._runner.vocab_size:
            last = self._runner.vocab_size - 1
            raise UserError(f"{prompt.uid}: a prompt is one or more token ids from 0 to {last}; is this its tokenizer?")
        check_prompt(self._runner.model, prompt)
        self._runner.check(prompt, params)

    def _join(self, request: Request) -> None:
        params, ids = request.params, request.prompt.ids
        # What was kept under this id serves whoever goes on with the same tokens, as far as they are the same.
        if (kept := self._kept.pop((params.seed, request.sample_id), None)) is not None:
            serves = params.n == 1 and request.prompt.media is None
            common = min(_common(kept.ids, ids), len(ids) - 1) if serves else 0
            kept = self._runner.trim(kept, common)
            request.kept = kept if common else None
        self._scheduler.add(request)

    def _abort(self, sample_ids: frozenset[int] | None) -> None:
        writing = [*self._scheduler.running, *self._scheduler.waiting]
        self._leave([s for s in writing if sample_ids is None or s.request.sample_id + s.index in sample_ids])

    def _leave(self, sequences: list[Sequence]) -> None:
        left = [sequence for sequence in sequences if sequence.finish is None]
        for sequence in left:
            sequence.finish = "abort"
            self._finished(sequence)
        _wake_readers(left)
        waiting = self._scheduler.waiting
        self._scheduler.waiting = type(waiting)(s for s in waiting if s.finish is None)
        self._remove_finished()

    def _append(self, drawn: list[Drawn]) -> None:
        """Add tokens to the sequences that go on, and see which are finished by them."""
        grown: list[Sequence] = []
        try:
            for batch, (sequence, tokens, log_probs, tops) in ((some, each) for some in drawn for each in some):
                if sequence.finish is not None or not tokens:  # a runner that looks ahead draws past the end
                    continue
                grown.append(sequence)
                if not sequence.marks or sequence.marks[-1][1] != self.version:
                    sequence.marks.append((len(sequence.ids), self.version))
                taken, finish = self._stop(sequence, tokens)
                sequence.ids += tokens[:taken]
                sequence.tops += tops[:taken]
                batch.take_routes(sequence, taken)
                sequence.log_probs += log_probs[:taken]
                sequence.finish = finish  # last: whoever streams takes it for a promise that all tokens are there
                if sequence.finish is not None:
                    self._finished(sequence)
        finally:
            _wake_readers(grown)

    def _finished(self, sequence: Sequence) -> None:
        request = sequence.request
        if request.params.keep:
            self._keep(sequence)
        request.unfinished -= 1
        self._runner.finished(sequence)
        if request.on_finish is not None:
            request.on_finish(request)

    def _keep(self, sequence: Sequence) -> None:
        """Hold on to what a sequence has in the cache, for as many sequences as there are slots."""
        slot = next((slot for slot, each in enumerate(self._scheduler.running) if each is sequence), None)
        kept = self._runner.keep(slot, sequence) if slot is not None else None
        if kept is not None:
            key = (sequence.request.params.seed, sequence.request.sample_id + sequence.index)
            self._forget(key)  # of another request with this id
            self._kept[key] = kept
            while len(self._kept) > self._scheduler.max_num_seqs * self._runner.most_kept:
                self._runner.trim(self._kept.popitem(last=False)[1], 0)

    def _forget(self, key: tuple[int, int] | None = None) -> None:
        """Give back what was kept of a sample by its (seed, sample id), or of all."""
        for each in list(self._kept) if key is None else [key]:
            if (kept := self._kept.pop(each, None)) is not None:
                self._runner.trim(kept, 0)

    def _remove_finished(self) -> None:
        before = len(self._scheduler.running)
        moves = self._scheduler.remove_finished()
        if len(self._scheduler.running) < before:
            self._runner.rearrange(moves, len(self._scheduler.running))

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
                if not (self._inbox or self._scheduler.waiting or self._scheduler.running):
                    self._driver = None
                    return

    def _fail_all(self, error: BaseException) -> None:
        """End every request with this error."""
        self._kept.clear()
        self._join_and_leave()
        failed = [s for s in (*self._scheduler.running, *self._scheduler.waiting) if s.finish is None]
        for sequence in failed:
            sequence.finish = "abort"
            sequence.request.error = error
            self._finished(sequence)
        _wake_readers(failed)
        self._scheduler.running.clear()
        self._scheduler.waiting.clear()
        self._runner.reset()
        self._kept.clear()


def _wake_readers(sequences: list[Sequence]) -> None:
    """Tell those who read sequences as they grow."""
    if readers := {reader for sequence in sequences if (reader := sequence.request.reader) is not None}:
        from whet.rollout.engines.native.streaming import wake

        wake(readers)


def _common(one: list[int], other: list[int]) -> int:
    """Return how many first tokens are the same."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i, (a, b) in enumerate(zip(one, other)) if a != b)
