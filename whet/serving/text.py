"""Turn the tokens of a response into text, incrementally.

What comes out does not depend on how the tokens were cut into pieces: a stream put together is the answer that would
have come whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character, or not yet


class Vocabulary:
    """Text and bytes of tokens, as clients see them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, shown: Iterable[str] = ()) -> None:
        """`shown` are tokens that belong to the text though the tokenizer calls them special."""
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        special = {token for token, each in added.items() if each.special} | set(tokenizer.all_special_ids)
        wanted = set(shown)
        self.hidden = frozenset(t for t in special if str(added.get(t, "")) not in wanted)
        # A run of such tokens is characters or it is not, as a whole: one more may change what all of them are.
        self.bytes = frozenset(token for name, token in tokenizer.get_vocab().items() if BYTE.fullmatch(name))

    def hidden_but(self, shown: Iterable[str]) -> frozenset[int]:
        """Return the tokens to leave out of a text in which some special ones are to be seen."""
        wanted = set(shown)
        return frozenset(token for token in self.hidden if self.spell([token]) not in wanted)

    def spell(self, ids: Sequence[int]) -> str:
        """The text of tokens as it stands in a response, special tokens included."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text if isinstance(text, str) else text[0]

    def token(self, token: int) -> tuple[str, list[int] | None]:
        """A token alone, and its bytes where it is whole characters."""
        text = self.spell([token])
        return text, None if BROKEN in text else list(text.encode())


class Detokenizer:
    """Adds tokens and returns the text that is certain by then; part of a character waits for the rest of it."""

    def __init__(self, vocabulary: Vocabulary, hidden: frozenset[int] | None = None) -> None:
        """`hidden` are the tokens that are left out; None for all special ones."""
        self._vocabulary = vocabulary
        self._hidden = vocabulary.hidden if hidden is None else hidden
        self._before: list[int] = []  # written already; some tokenizers write a token otherwise at the start of a text
        self._pending: list[int] = []

    def add(self, ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        self._pending += [token for token in ids if token not in self._hidden]
        text = self._pending_text()
        if not text or text.endswith(BROKEN) or self._pending[-1] in self._vocabulary.bytes:
            return ""
        return self._take(text)

    def finish(self) -> str:
        """The rest, broken or not."""
        return self._take(self._pending_text())

    def _pending_text(self) -> str:
        if not self._pending:
            return ""
        known = self._vocabulary.spell(self._before)
        return self._vocabulary.spell(self._before + self._pending)[len(known) :]

    def _take(self, text: str) -> str:
        if self._pending:
            self._before, self._pending = self._pending, []
        return text


class StopCut:
    """Ends a text before the first stop string in it; what might become one waits."""

    def __init__(self, stop: Sequence[str], keep: bool = False) -> None:
        """Find stop strings; with `keep`, the stop string itself stays in the text."""
        self._stop, self._keep = tuple(stop), keep
        self._held = ""
        self.stopped = False
        self.found: str | None = None  # the stop string that came

    def add(self, text: str) -> str:
        """The text that is certainly not part of a stop string."""
        if self.stopped or not self._stop:
            return "" if self.stopped else text
        self._held += text
        found = [(self._held.find(stop), stop) for stop in self._stop if stop in self._held]
        if found:
            # The one that is complete first, as the engine sees it; of those, the longest.
            start, stop = min(found, key=lambda each: (each[0] + len(each[1]), each[0]))
            self.stopped, self.found = True, stop
            shown, self._held = self._held[: start + len(stop) if self._keep else start], ""
            return shown
        return self._release(held_back(self._held, self._stop))

    def finish(self) -> str:
        """Return the text held back: no stop string came."""
        return self._release(0)

    def _release(self, kept: int) -> str:
        cut = len(self._held) - kept
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def held_back(text: str, marks: Sequence[str]) -> int:
    """Count the characters at the end of a text that may begin one of the marks."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)
