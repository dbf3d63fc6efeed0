"""Allocation of cache pages to sequences, and preemption when they run out.

A sequence takes pages as it grows: before each window of tokens every running sequence has pages for that window. A
sequence that waits takes pages for its prompt, for the tokens it has and for its first window, if some stay free:
running sequences would otherwise run dry at once and it would be preempted again.

A sample that will be continued may leave its pages here when it ends. They are given up, the oldest first, before
anybody goes without: what they held is then read again.

Contract: `reserve`, `grow` and `evict` never block. The engine evicts what waits and then preempts the youngest that
run until the others can grow, so that the oldest always proceeds; `check` refuses what would not fit alone.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import cast

from whet.errors import UserError
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.pages import PAGE, KeptPages, PagePool, PromptPages, prompt_pages, sample_pages
from whet.rollout.engines.native.sequence import Reading, Request, Sequence
from whet.rollout.engines.native.storage import PageStorage
from whet.types import Prompt

_WORTH = 8  # a preempted sequence returns when all can write this fraction of the tokens that must be read again


class PageAllocator:
    """Pages of prompts and sequences over a storage that grows on demand."""

    def __init__(self, storage: PageStorage, window: int) -> None:
        """`window` is the number of tokens that a running sequence may write before it is asked about again."""
        self.storage, self._window = storage, window
        self.pool = PagePool(1)
        self._holders = 0  # sequences that hold pages of their own
        self._kept: dict[KeptPages, None] = {}  # oldest first
        self._limit: int | None = None  # pages that the storage has room for; measured when the cache is taken
        self._wanted = 0  # pages that it had when it was last released

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Raise a `UserError` for a request of which not even one sample fits into the whole cache."""
        if prompt_pages(prompt) + sample_pages(prompt, params.max_tokens) >= self.storage.capacity():
            raise UserError(
                f"{prompt.uid}: {len(prompt.ids)} prompt tokens and {params.max_tokens} new ones do not fit into the "
                "key-value cache: raise worker.rollout.gpu_memory_utilization or lower data.max_response_length"
            )

    def reserve(self, sequence: Sequence) -> bool:
        """Take what a waiting sequence needs to start, and note what must be read for it; False if pages are short."""
        if sequence.pages:
            return True
        request = sequence.request
        # 1. The prompt's pages, unless another sample has brought them, and those of the first window.
        held = cast("PromptPages | None", request.prefilled)
        kept = request.kept if held is None and isinstance(request.kept, KeptPages) else KeptPages([], [])
        prompt = prompt_pages(request.prompt) - len(kept.pages) if held is None else 0
        own = self._own_pages(sequence)
        # 2. One page for every other sequence stays free; more where a preempted one brings many tokens to read.
        spare = self._holders * (1 + len(sequence.ids) // (_WORTH * PAGE))
        self._kept.pop(kept, None)  # while pages are looked for, its own are not given up
        pages = self._take(prompt + own, spare)
        if pages is None:
            if kept.pages:
                self._kept[kept] = None
            return False
        # 3. A prompt is read without its last token, a response without its last and with the prompt's last.
        before = len(request.prompt.ids) - 1
        if held is None:
            known = len(kept.ids)
            listed = kept.forget() + pages[:prompt]
            held = request.prefilled = PromptPages(listed, listed[-1] if before % PAGE else None)
            request.reading = Reading(request, None, known, before) if before > known else None
            request.kept = None
        sequence.pages = pages[prompt:]
        if sequence.ids:
            sequence.reading = Reading(request, sequence, before, before + len(sequence.ids))
        held.users += 1
        self._holders += 1
        return True

    def grow(self, running: Seq[Sequence], spare: int = 0) -> list[tuple[int, int, int]] | None:
        """Take pages for the next window of all running sequences, such that `spare` stay free; None if short.

        Returns (slot, column, page) of every page: what must be written to the block table.
        """
        lacking = [(slot, s, self._own_pages(s) - len(s.pages)) for slot, s in enumerate(running)]
        pages = self._take(sum(lack for _, _, lack in lacking if lack > 0), spare)
        if pages is None:
            return None
        entries = []
        for slot, sequence, lack in lacking:
            shared = (len(sequence.request.prompt.ids) - 1) // PAGE
            for _ in range(lack):
                page = pages.pop()
                entries.append((slot, shared + len(sequence.pages), page))
                sequence.pages.append(page)
        return entries

    def evict(self, sequence: Sequence) -> bool:
        """Take back all pages of a sequence that does not run; False if it held none.

        Those of its prompt too, unless another of its samples holds pages behind them.
        """
        freed = self._take_back(sequence) | self._give_up(sequence.request.kept)
        held = cast("PromptPages | None", sequence.request.prefilled)
        if held is not None and held.users == 0:
            self._take_back_prompt(sequence.request)
            freed = True
        return freed

    def finished(self, sequence: Sequence) -> None:
        """Take back the pages of a sequence that has ended and, after the last of its request, the prompt's."""
        # A window that is under way may still write there. The next owner's writes are queued behind it.
        self._take_back(sequence)
        self._give_up(sequence.request.kept)
        if sequence.request.unfinished == 0 and sequence.request.prefilled is not None:
            self._take_back_prompt(sequence.request)

    def keep(self, sequence: Sequence) -> KeptPages | None:
        """Hold on to the pages of a running sequence that has ended; None where they are not its own alone.

        Its last token was drawn and not read, and has no keys and values yet.
        """
        request, held = sequence.request, cast("PromptPages | None", sequence.request.prefilled)
        if held is None or not sequence.ids or request.params.n > 1 or request.prompt.media is not None:
            return None
        ids, listed = request.prompt.ids + sequence.ids[:-1], held.shared + sequence.pages
        count = -(-len(ids) // PAGE)
        self.pool.give(listed[count:] + ([] if held.tail is None else [held.tail]))
        sequence.pages, request.prefilled = [], None
        self._holders -= 1
        kept = KeptPages(ids, listed[:count])
        self._kept[kept] = None
        return kept

    def trim(self, kept: KeptPages, tokens: int) -> KeptPages:
        """Give up all that is kept of a sample behind its first tokens; return what is left."""
        count = -(-tokens // PAGE)
        self.pool.give(kept.pages[count:])
        kept.ids, kept.pages = kept.ids[:tokens], kept.pages[:count]
        if not kept.pages:
            self._kept.pop(kept, None)
        return kept

    def _give_up(self, kept: object) -> bool:
        """Take back what was kept and nobody has continued yet; False if there is nothing."""
        if not isinstance(kept, KeptPages) or not kept.pages:
            return False
        self._kept.pop(kept, None)
        self.pool.give(kept.forget())
        return True

    def release(self) -> None:
        """Give the storage's memory back; nobody may hold a page."""
        assert self.pool.idle, "pages of a released cache are in use"
        self._limit = None
        if self.storage.release():
            self._wanted, self.pool = self.pool.pages, PagePool(1)

    def reset(self) -> None:
        """Take back all pages, whoever holds them."""
        for kept in self._kept:
            kept.forget()
        self._kept.clear()
        self.pool, self._holders = PagePool(self.pool.pages), 0

    def _own_pages(self, sequence: Sequence) -> int:
        """Pages besides the shared ones that a sequence needs to the end of its next window."""
        params = sequence.request.params
        written = min(len(sequence.ids) + sequence.ahead + self._window, params.max_tokens)
        return sample_pages(sequence.request.prompt, written)

    def _take(self, count: int, spare: int = 0) -> list[int] | None:
        short = count + spare - self.pool.free
        if short > 0:
            self._enlarge(self.pool.pages + short)
        short = count + spare - self.pool.free
        if 0 < short <= sum(len(kept.pages) for kept in self._kept):
            while count + spare > self.pool.free:
                self._give_up(next(iter(self._kept)))
        return self.pool.take(count) if count + spare <= self.pool.free else None

    def _enlarge(self, pages: int) -> None:
        """Enlarge the storage to `pages` pages or more where there is room, and note where there is none left."""
        if self._limit is None:
            self._limit = self.storage.room()
        if self.pool.pages >= self._limit:
            return
        least = min(max(pages, self._wanted), self._limit)
        have = self.storage.grow(least, self._limit)
        if have < least:
            self._limit = have
        self.pool.grow(have)

    def _take_back(self, sequence: Sequence) -> bool:
        if not sequence.pages:
            return False
        self.pool.give(sequence.pages)
        sequence.pages, sequence.reading = [], None
        cast(PromptPages, sequence.request.prefilled).users -= 1
        self._holders -= 1
        return True

    def _take_back_prompt(self, request: Request) -> None:
        self.pool.give(cast(PromptPages, request.prefilled).pages)
        request.prefilled, request.reading = None, None
