"""A runner without a model: the cache holds token ids, and a token is a hash of everything that its slot can read.

It has the paged runner's order of events, a window in flight included. A page that is lost, shared wrongly, overwritten
or read again wrongly changes what is drawn, or fails an assertion at once.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.allocator import PageAllocator
from whet.rollout.engines.native.pages import PAGE, KeptPages, PromptPages
from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sequence import Chunk, Sequence
from whet.types import Prompt

VOCABULARY = 97
WINDOW = 5


class BookStorage:
    """Pages of token ids; `most` of them."""

    def __init__(self, most: int, room: int | None = None) -> None:
        self.most, self._room = most, most if room is None else room
        self.pages: list[list[int | None]] = []
        self.releases = 0

    def capacity(self) -> int:
        return self.most

    def room(self) -> int:
        return self._room

    def grow(self, least: int, most: int) -> int:
        assert least <= most <= self._room
        while len(self.pages) < min(most, least + 2):
            self.pages.append([None] * PAGE)
        return len(self.pages)

    def release(self) -> bool:
        self.pages, self.releases = [], self.releases + 1
        return True


class Slot:
    """What the device knows of a slot."""

    def __init__(self, table: list[int], token: int, position: int, written: int, sequence: Sequence) -> None:
        self.table, self.token, self.position, self.written = table, token, position, written
        self.key, self.live = sequence.key, True
        self.limit, self.stops = sequence.request.params.max_tokens, not sequence.request.params.ignore_eos


class BookRunner:
    """The Runner protocol over `BookStorage`."""

    model: Any = None
    vocab_size = VOCABULARY
    keeps, most_kept = True, 64

    def __init__(self, storage: BookStorage, ends: frozenset[int]) -> None:
        self.storage, self.ends = storage, ends
        self.pages = PageAllocator(storage, WINDOW)  # type: ignore[arg-type]
        self.slots: list[Slot] = []
        self.flight: tuple[list[Sequence], list[list[int]]] | None = None
        self.read_tokens: list[int] = []  # of every prefill
        self.most_running = 0

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        self.pages.check(prompt, params)

    def reserve(self, sequence: Sequence) -> bool:
        return self.pages.reserve(sequence)

    def grow(self, running: list[Sequence], spare: bool = False) -> bool:
        entries = self.pages.grow(running, len(running) if spare and len(running) > 1 else 0)
        for slot, column, page in entries or ():
            assert column == len(self.slots[slot].table)
            self.slots[slot].table.append(page)
        return entries is not None

    def evict(self, sequence: Sequence) -> bool:
        return self.pages.evict(sequence)

    def finished(self, sequence: Sequence) -> None:
        self.pages.finished(sequence)

    def occupancy(self) -> tuple[int, int]:
        pool = self.pages.pool
        return pool.pages - 1 - pool.free, pool.pages - 1

    def prefill(self, chunks: list[Chunk]) -> None:
        self.read_tokens.append(sum(stop - reading.at for reading, stop in chunks))
        for reading, stop in chunks:
            held, sequence = reading.request.prefilled, reading.sequence
            assert isinstance(held, PromptPages)
            if sequence is not None and reading.at == len(reading.request.prompt.ids) - 1:
                self._copy_tail(sequence)
            table = held.pages if sequence is None else held.shared + sequence.pages
            assert self._text(table, reading.at) == reading.ids(0, reading.at)
            for at, token in enumerate(reading.ids(reading.at, stop), start=reading.at):
                self._write(table, at, token)
            reading.advance(stop)

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        for slot, sequence in admitted:
            assert slot == len(self.slots)
            held, prompt, written = sequence.request.prefilled, sequence.request.prompt.ids, len(sequence.ids)
            assert isinstance(held, PromptPages)
            if not written:
                self._copy_tail(sequence)
            last = sequence.ids[-1] if written else prompt[-1]
            position = len(prompt) - 1 + written
            self.slots.append(Slot(held.shared + sequence.pages, last, position, written, sequence))
        self.most_running = max(self.most_running, len(self.slots))
        return []

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        for source, target, _ in moves:
            self.slots[target] = self.slots[source]
        del self.slots[running:]

    def settle(self) -> list[Drawn]:
        flight, self.flight = self.flight, None
        if flight is None:
            return []
        sequences, tokens = flight
        for sequence in sequences:
            sequence.ahead -= WINDOW
        return [Drawn(sequences, tokens, [[-float(token) for token in row] for row in tokens])]

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        before, launched = self.flight, None
        if any(s.ahead + len(s.ids) < s.request.params.max_tokens for s in running):
            launched = (list(running), [self._window(slot) for slot in self.slots])
            for sequence in running:
                sequence.ahead += WINDOW
        self.flight = before
        drawn = self.settle()
        self.flight = launched
        return drawn

    def keep(self, slot: int, sequence: Sequence) -> KeptPages | None:
        return self.pages.keep(sequence)

    def trim(self, kept: Any, tokens: int) -> KeptPages:
        return self.pages.trim(kept, tokens)

    def release(self) -> None:
        self.flight = None
        self.pages.release()

    def reset(self) -> None:
        self.flight, self.slots = None, []
        self.pages.reset()

    def _window(self, slot: Slot) -> list[int]:
        drawn = []
        for _ in range(WINDOW):
            if not slot.live:
                break
            self._write(slot.table, slot.position, slot.token)
            text = self._text(slot.table, slot.position + 1)
            slot.token = crc32(repr((text, slot.key, slot.written)).encode()) % VOCABULARY
            slot.position, slot.written = slot.position + 1, slot.written + 1
            slot.live = slot.written < slot.limit and not (slot.stops and slot.token in self.ends)
            drawn.append(slot.token)
        return drawn

    def _write(self, table: list[int], at: int, token: int) -> None:
        assert table[at // PAGE] != 0
        self.storage.pages[table[at // PAGE]][at % PAGE] = token

    def _text(self, table: list[int], length: int) -> list[int | None]:
        return [self.storage.pages[table[at // PAGE]][at % PAGE] for at in range(length)]

    def _copy_tail(self, sequence: Sequence) -> None:
        held = sequence.request.prefilled
        assert isinstance(held, PromptPages)
        if held.tail is not None:
            self.storage.pages[sequence.pages[0]] = list(self.storage.pages[held.tail])
