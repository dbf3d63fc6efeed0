"""Pages of the key-value cache: which are free, which belong to a prompt, and how many a sequence needs.

Invariant: every page but page 0 is either free or held by exactly one owner, a prompt or a sequence. Full pages of a
prompt are listed in the block-table rows of all its samples and written by none of them; a page that the prompt fills
only partly is copied by each sample, which writes behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import Prompt

PAGE = 16  # tokens


@dataclass(slots=True, eq=False)
class PromptPages:
    """Pages of a prompt without its last token, which is the first token that decoding reads."""

    pages: list[int]
    tail: int | None  # the last page if it is only partly filled
    users: int = 0  # sequences that hold pages of their own behind it

    @property
    def shared(self) -> list[int]:
        """The pages that no sample writes to."""
        return self.pages if self.tail is None else self.pages[:-1]


@dataclass(slots=True, eq=False)
class KeptPages:
    """Pages of a sample that will be continued; both lists are empty once they were given up."""

    ids: list[int]  # tokens whose keys and values the pages hold
    pages: list[int]

    def forget(self) -> list[int]:
        """Give up everything; return the pages."""
        pages, self.ids, self.pages = self.pages, [], []
        return pages


class PagePool:
    """Numbers of free pages. Page 0 is never handed out: slots that have ended write there."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, 0, -1))

    @property
    def free(self) -> int:
        """Number of free pages."""
        return len(self._free)

    @property
    def idle(self) -> bool:
        """True if all pages are free."""
        return len(self._free) == self.pages - 1

    def grow(self, pages: int) -> None:
        """Add page numbers up to `pages`; the new ones are handed out after those that are free already."""
        self._free[:0] = range(pages - 1, self.pages - 1, -1)
        self.pages = max(self.pages, pages)

    def take(self, count: int) -> list[int] | None:
        """Return `count` pages, or None if fewer are free."""
        if count > len(self._free):
            return None
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def give(self, pages: list[int]) -> None:
        """Take pages back."""
        self._free.extend(pages)


def prompt_pages(prompt: Prompt) -> int:
    """Pages that hold a prompt without its last token."""
    return -(-(len(prompt.ids) - 1) // PAGE)


def sample_pages(prompt: Prompt, tokens: int) -> int:
    """Pages that a sample of `tokens` tokens needs besides those it shares; its last token is never read."""
    before = len(prompt.ids) - 1
    return -(-(before + tokens) // PAGE) - before // PAGE
