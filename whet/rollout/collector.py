"""Prompts in, finished and scored groups out, with a bound on the groups in flight.

A group is scored as soon as its last sample is finished, while others are being sampled. Synchronous training takes a
batch whole and in order; asynchronous training takes groups as they come.
"""

from __future__ import annotations

import asyncio
import bisect
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from whet.rollout.loop_thread import LoopThread
from whet.rollout.tickets import Busy, Choose, Entry, Progress, Rollout, Score, Submission, Ticket
from whet.types import Group, Prompt

CLOSE_SECONDS = 10.0  # that `close` waits for what is in flight; an engine that blocks for ever is left behind


class Collector:
    """Samples and scores groups in the event loop of a thread of its own.

    Invariant: every prompt handed in by `submit` comes out of `take` exactly once, or is in `pending`, whatever raises,
    hangs, or is cancelled or interrupted. What was in flight then waits, and begins anew under the same sample ids: the
    same weights write the same samples. A checkpoint can hold the groups of `ready` and the other tickets.

    `rollout` samples one group. `score` fills the scores of the samples of one group, or with `together` of all that
    one `submit` handed in. Both run many at a time and must not block the event loop.

    The first error ends everything in flight; waiting raises it until `resume`. Methods may be called from any thread.
    """

    def __init__(self, rollout: Rollout, score: Score, limit: int | None = None, together: bool = False) -> None:
        """`limit` bounds the groups in flight (with `together`, those being sampled); None begins all at once."""
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit}: at least one group has to be in flight")
        self._rollout, self._score, self._limit, self._together = rollout, score, limit, together
        self._changed = threading.Condition()  # guards everything below
        self._entries: dict[int, Entry] = {}  # what was not taken, by number, in the order of the numbers
        self._waiting: list[Entry] = []  # in the order of their numbers
        self._finished: list[Entry] = []  # in the order in which they got ready
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()  # those that were cancelled
        self._handed_in, self._busy = 0, Busy()
        self._error: BaseException | None = None
        self._held = self._closed = False  # held: nothing begins
        self._thread = LoopThread("whet-collector")

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> list[Ticket]:
        """Tickets that were not taken, in the order of `submit`; those of the groups in `ready` are among them."""
        with self._changed:
            return [entry.ticket for entry in self._entries.values()]

    @property
    def ready(self) -> list[Group]:
        """Groups that are sampled and scored and were not taken, in the order in which they got ready."""
        with self._changed:
            return [entry.group for entry in self._finished if entry.group is not None]

    @property
    def in_flight(self) -> int:
        """Number of groups that are being sampled or scored."""
        with self._changed:
            return len(self._tasks)

    def submit(self, rows: Sequence[int], prompts: Sequence[Prompt], ids: Sequence[range]) -> list[Ticket]:
        """Hand in prompts, with the rows that they came from and the ids of each one's samples."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the collector is closed")
            batch, numbers = Submission([]), range(self._handed_in, self._handed_in + len(rows))
            tickets = [Ticket(*each) for each in zip(numbers, rows, prompts, ids, strict=True)]
            batch.entries = [Entry(ticket, batch) for ticket in tickets]
            self._handed_in += len(tickets)
            self._entries |= {entry.ticket.number: entry for entry in batch.entries}
            self._waiting += batch.entries
            self._thread.soon(self._begin)
            return tickets

    def wait_sampled(self, progress: Progress | None = None) -> None:
        """Wait until everything handed in is sampled; some of it may not be scored yet."""
        with self._changed:
            entries = list(self._entries.values())
        self._wait(entries, len(entries), lambda entry: entry.group is not None, progress)

    def take(
        self,
        count: int,
        ordered: bool = False,
        timeout: float | None = None,
        progress: Progress | None = None,
        choose: Choose | None = None,
    ) -> list[Group]:
        """Return so many groups as they get ready, or with `ordered` those that were handed in first.

        `choose` is shown the numbers of the groups that are ready, in that order, whenever there are enough: it returns
        which to take, or None to wait for more. `TimeoutError`, with nothing taken, if they are not ready within so
        many seconds.
        """
        with self._changed:
            if count > len(self._entries):
                raise ValueError(f"{count} groups were asked for, and {len(self._entries)} are pending")
            entries = list(self._entries.values())[: count if ordered else None]
        self._wait(entries, count, lambda entry: entry.scored, progress, timeout)
        while choose is not None:
            with self._changed:
                ready = [entry.ticket.number for entry in self._finished]
            if (numbers := choose(ready)) is not None:
                entries, ordered = [self._entries[number] for number in numbers], True
                break
            self._wait(entries, len(ready) + 1, lambda entry: entry.scored, None, timeout)
        with self._changed:
            chosen = (entries if ordered else self._finished)[:count]
            groups = [entry.group for entry in chosen if entry.group is not None]
            self._finished = [entry for entry in self._finished if entry not in set(chosen)]
            for entry in chosen:
                del self._entries[entry.ticket.number]
        return groups

    def cancel(self, timeout: float | None = None) -> None:
        """End what is in flight, within so many seconds, and begin nothing until `resume`; all of it stays pending."""
        with self._changed:
            self._held = True
            self._thread.soon(self._cancel_tasks)
            if not self._changed.wait_for(lambda: not self._tasks, timeout):
                raise TimeoutError(f"{len(self._tasks)} groups in flight did not end within {timeout} s")

    def renew(self, numbers: Collection[int]) -> None:
        """Begin these groups anew, whether they are in flight or ready: what was sampled of them is dropped.

        Not for functions that score a whole batch, which have seen the others of it.
        """
        assert not self._together, "a batch that is scored as a whole is not sampled anew in part"
        with self._changed:
            self._thread.soon(partial(self._renew, frozenset(numbers)))

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds in which some group was being sampled, and in which some group was being scored."""
        with self._changed:
            return self._busy.seconds()

    def resume(self) -> None:
        """Go on after `cancel` or an error: whatever is pending and not ready begins anew."""
        with self._changed:
            self._held, self._error = False, None
            self._thread.soon(self._begin)

    def close(self) -> None:
        """End what is in flight, and the thread; what was not taken can still be read from `pending` and `ready`."""
        with self._changed:
            self._closed = self._held = True
            if not self._thread.is_alive:
                return
            self._thread.soon(self._cancel_tasks)
            self._changed.wait_for(lambda: not self._tasks, CLOSE_SECONDS)
            self._thread.stop()
        self._thread.join(CLOSE_SECONDS)

    def _wait(
        self,
        entries: Sequence[Entry],
        count: int,
        is_done: Callable[[Entry], bool],
        progress: Progress | None,
        timeout: float | None = None,
    ) -> None:
        """Wait until `count` of the entries are done; `progress` is called in the caller's thread."""
        deadline = None if timeout is None else time.monotonic() + timeout
        told = 0
        while True:
            with self._changed:
                done = [entry for entry in entries if is_done(entry)]
                if len(done) < count and len(done) <= told:
                    if self._error is not None or self._closed:
                        raise self._error or RuntimeError("the collector was closed")
                    left = None if deadline is None else deadline - time.monotonic()
                    if (left is not None and left <= 0) or not self._changed.wait(left):
                        raise TimeoutError(f"{len(done)} of {count} groups are done")
                    continue
            if progress is not None:
                for entry in done[told:]:
                    progress(len(entry.ticket.ids))
            told = len(done)
            if told >= count:
                return

    # In the event loop's thread from here on.

    def _begin(self) -> None:
        """Let waiting groups begin, as many as the limit allows; those of one turn of the loop begin together."""
        with self._changed:
            if self._held or self._ending:  # what begins anew must have ended
                return
            room = len(self._waiting)
            if self._limit is not None:
                flying = [entry for entry in self._entries.values() if entry.task is not None]
                room = max(0, self._limit - sum(not (self._together and entry.group) for entry in flying))
            begun, self._waiting = self._waiting[:room], self._waiting[room:]
            for entry in begun:
                entry.task = asyncio.get_running_loop().create_task(self._collect(entry))
                entry.task.add_done_callback(partial(self._ended, entry))
                self._tasks.add(entry.task)

    async def _collect(self, entry: Entry) -> None:
        """Sample and score one group."""
        ticket, begun = entry.ticket, time.perf_counter()
        stage = {"sampling": 1}  # what this group adds to the counts of `Busy`
        self._note(stage)
        try:
            samples = await self._rollout(ticket.prompt, ticket.ids)
            for sample in samples:
                sample.group = ticket.ids.start
            self._note({"sampling": -1, "scoring": 1})
            stage, sampled = {"scoring": 1}, time.perf_counter()
            with self._changed:
                entry.group = group = Group(ticket.row, samples)
                self._changed.notify_all()
            if self._together:
                self._begin()
                await self._score_batch(entry.batch)
            else:
                await self._score(samples)
        except (KeyboardInterrupt, SystemExit) as error:  # which would end the thread
            raise RuntimeError(f"{type(error).__name__} in a rollout or a scorer") from error
        finally:
            self._note({name: -count for name, count in stage.items()})
        group.times = begun, sampled, time.perf_counter()
        with self._changed:
            entry.scored = True
            self._finished.append(entry)
            self._changed.notify_all()

    def _note(self, change: dict[str, int]) -> None:
        with self._changed:
            self._busy.change(**change)

    async def _score_batch(self, batch: Submission) -> None:
        """Score all groups of a batch at once, when the last of them is sampled; the others wait for it."""
        if batch.scored is None or batch.scored.done():
            batch.scored = asyncio.get_running_loop().create_future()
        scored = batch.scored
        groups = [entry.group for entry in batch.entries if entry.group is not None]
        if len(groups) < len(batch.entries):
            await scored
            return
        try:
            await self._score([sample for group in groups for sample in group.samples])
        except BaseException:
            scored.cancel()
            raise
        if not scored.done():
            scored.set_result(None)

    def _ended(self, entry: Entry, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        with self._changed:
            cancelled = task in self._ending
            self._tasks.discard(task)
            self._ending.discard(task)
            entry.task = None
            if not entry.scored:
                entry.group = None
                bisect.insort(self._waiting, entry, key=lambda each: each.ticket.number)
                if not cancelled and self._error is None:
                    self._error = error or RuntimeError("a rollout or a scorer cancelled its own task")
                    self._held = True
                    self._cancel_tasks()
            self._changed.notify_all()
        self._begin()

    def _renew(self, numbers: frozenset[int]) -> None:
        with self._changed:
            for number in numbers & self._entries.keys():
                entry = self._entries[number]
                if entry.scored:
                    self._finished.remove(entry)
                entry.scored, entry.group = False, None
                if entry.task is None and entry not in self._waiting:
                    bisect.insort(self._waiting, entry, key=lambda each: each.ticket.number)
                elif entry.task is not None:  # it waits again when its task has ended
                    self._ending.add(entry.task)
                    entry.task.cancel()
        self._begin()

    def _cancel_tasks(self) -> None:
        with self._changed:
            self._ending |= self._tasks
            for task in self._ending:
                task.cancel()
