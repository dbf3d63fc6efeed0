"""Pages of the key-value cache: which are free, and which belong to a prompt.

A prompt's full pages are listed by all its samples; what is left over of it lies in a page that every sample copies,
since it will write behind it. A sample takes all the pages it can ever need when it is given a slot, so that a sample
that was begun can always be finished.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import Prompt

PAGE = 16  # tokens


@dataclass(slots=True, eq=False)
class PromptPages:
    """A prompt in the cache: all but its last token, which is the first that decoding reads."""

    pages: list[int]
    own: list[int]  # pages set aside for the next of its samples
    tail: int | None  # the page that is only partly filled

    @property
    def shared(self) -> list[int]:
        """The pages that no sample writes to."""
        return self.pages if self.tail is None else self.pages[:-1]


class PagePool:
    """Numbers of free pages. Page 0 is never given away: slots that have ended write there."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, 0, -1))

    @property
    def idle(self) -> bool:
        """Whether nobody holds a page."""
        return len(self._free) == self.pages - 1

    def take(self, count: int) -> list[int] | None:
        """So many pages, or None where there are not as many."""
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


def sample_pages(prompt: Prompt, max_tokens: int) -> int:
    """Pages that one sample needs besides those it shares; its last token is never read."""
    before = len(prompt.ids) - 1
    return -(-(before + max_tokens) // PAGE) - before // PAGE
