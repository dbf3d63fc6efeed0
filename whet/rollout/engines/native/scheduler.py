"""Who is waiting, and who runs in which slot.

Running sequences always occupy slots 0..B-1. When one finishes, a waiting sequence takes its slot; when none waits,
the last slot moves into the hole. A prompt is prefilled when the first of its samples gets near a slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from whet.rollout.engines.native.sequence import Request, Sequence


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
