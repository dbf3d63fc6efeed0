"""Scheduler: waiting sequences, and the slots of running ones.

Running sequences always occupy slots 0..B-1. When one finishes, a waiting sequence takes its slot; when none waits,
the last slot moves into the hole. A prompt is prefilled when the first of its samples gets near a slot.

Sequences are served in the order of their arrival. Whoever runs is older than all who wait: the youngest is preempted
first, goes back to the front of the queue, and is the next to run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from whet.rollout.engines.native.sequence import Chunk, Reading, Request, Sequence

Moves = list[tuple[int, int, Sequence]]  # (source slot, target slot, sequence)


class Scheduler:
    """First come, first served, over `max_num_seqs` slots."""

    def __init__(self, max_num_seqs: int) -> None:
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # index = slot
        self._arrived = 0

    def add(self, request: Request) -> None:
        """Queue all sequences of a request."""
        for sequence in request.sequences:
            self._arrived += 1
            sequence.arrival = self._arrived
            self.waiting.append(sequence)

    def to_prefill(self, token_budget: int, reserve: Callable[[Sequence], bool]) -> list[Chunk]:
        """Return what the next prefill reads: at most `token_budget` tokens for the sequences next for the free slots.

        `reserve` takes memory for a sequence and says what must be read for it; False where memory is short. What fits
        into a budget is read in one pass, if need be in the next one; what is longer is read in parts.
        """
        chunks: list[Chunk] = []
        planned: set[Reading] = set()
        left = token_budget
        for sequence in islice(self.waiting, self.max_num_seqs - len(self.running)):
            # 1. Memory, in the order of arrival: nobody overtakes a sequence that waits for it.
            if not reserve(sequence):
                break
            # 2. The prompt first; the response of a preempted sequence when its prompt has been read.
            reading = sequence.request.reading or sequence.reading
            if reading is None or reading in planned:
                continue
            # 3. All of it, or a first part of what is longer than any budget.
            tokens = reading.stop - reading.at
            if tokens > left and chunks:
                break
            if tokens > left and reading.divisible:
                tokens = left
            planned.add(reading)
            chunks.append(Chunk(reading, reading.at + tokens))
            left -= tokens
        return chunks

    def admit(self, reserve: Callable[[Sequence], bool]) -> list[tuple[int, Sequence]]:
        """Give free slots to waiting sequences that have nothing left to read; (slot, sequence) of each."""
        admitted = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            request = sequence.request
            if request.prefilled is None or not reserve(sequence) or request.reading or sequence.reading:
                break
            self.waiting.popleft()
            admitted.append((len(self.running), sequence))
            self.running.append(sequence)
        return admitted

    def youngest(self) -> Sequence:
        """Return the running sequence that arrived last."""
        return max(self.running, key=lambda sequence: sequence.arrival)

    def preempt(self, sequence: Sequence) -> Moves:
        """Send a running sequence back to the front of the queue; the moves that keep slots dense."""
        self.waiting.appendleft(sequence)
        return self._drop(lambda each: each is sequence)

    def remove_finished(self) -> Moves:
        """Drop finished sequences; the moves that keep slots dense."""
        return self._drop(lambda each: each.finish is not None)

    def _drop(self, leaves: Callable[[Sequence], bool]) -> Moves:
        moves = []
        slot = 0
        while slot < len(self.running):
            if not leaves(self.running[slot]):
                slot += 1
                continue
            last = self.running.pop()
            if slot < len(self.running):
                self.running[slot] = last
                if not leaves(last):
                    moves.append((len(self.running), slot, last))
        return moves
