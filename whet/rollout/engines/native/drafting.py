"""Guesses of what sequences will write next, and whether checking them pays.

When few sequences are left, a pass over the model costs almost the same for eight tokens of each as for one: it reads
the same weights. So tokens are guessed and checked together. A guess is what followed the last three tokens where they
occurred before: in the sequence itself, its prompt, or another sample of the same prompt. What is sampled does not
depend on guesses: every token is drawn from the logits of the tokens before it with its own random number, and those
behind the first wrong guess are dropped.

Whether guesses would come true is known without checking them on the device: by comparing them with what was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from whet.rollout.engines.native.sequence import Request, Sequence

ORDER = 3  # tokens that must have occurred before
MOST_GUESSED = 7  # tokens of one sequence that are checked together
MOST_SEQUENCES = 16  # beyond this a pass takes longer for more tokens
_BEGIN, _END = 1.6, 1.3  # tokens that a pass must yield for guesses to be checked, and to go on checking
_FEWEST, _MEMORY = 8, 64  # passes that are looked at before the first decision, and that are remembered


@dataclass(slots=True)
class _Written:
    """Tokens behind every run of `ORDER` tokens in the samples of one request: the last place of each."""

    places: dict[tuple[int, ...], tuple[Sequence, int]] = field(default_factory=dict)
    read: dict[Sequence, int] = field(default_factory=dict)  # response tokens of each sample that are in `places`


class Drafter:
    """Finds earlier occurrences of a sequence's last tokens."""

    def __init__(self) -> None:
        self._requests: dict[Request, _Written] = {}

    def keep(self, running: Iterable[Sequence]) -> None:
        """Forget requests of which nothing runs."""
        requests = {sequence.request for sequence in running}
        self._requests = {request: found for request, found in self._requests.items() if request in requests}

    def read(self, sequence: Sequence, end: int) -> None:
        """Take in the first `end` response tokens of a sequence; of a new request, all its other samples too."""
        written = self._requests.get(sequence.request)
        if written is None:
            written = self._requests[sequence.request] = _Written()
            for other in sequence.request.sequences:
                if other is not sequence:
                    self._add(written, other, len(other.ids))
        self._add(written, sequence, end)

    def _add(self, written: _Written, sequence: Sequence, end: int) -> None:
        prompt = len(sequence.request.prompt.ids)
        first = prompt + written.read.get(sequence, -prompt)  # the prompt is read with the response
        start = max(0, first - ORDER)
        tokens = _tokens(sequence, start, prompt + end)
        for at in range(max(first, ORDER), prompt + end):
            written.places[tuple(tokens[at - ORDER - start : at - start])] = (sequence, at)
        written.read[sequence] = max(end, written.read.get(sequence, 0))

    def guess(self, sequence: Sequence, end: int) -> list[int]:
        """Return what may follow the first `end` response tokens; they were read, and no more of the sequence."""
        behind = len(sequence.request.prompt.ids) + end
        last = tuple(_tokens(sequence, behind - ORDER, behind)) if behind >= ORDER else ()
        found = self._requests[sequence.request].places.get(last)
        if found is None:
            return []
        other, at = found
        stop = behind if other is sequence else len(other.request.prompt.ids) + len(other.ids)
        return _tokens(other, at, min(at + MOST_GUESSED, stop))


class Speculation:
    """Follows the last sequences of a rollout, and decides whether guesses are checked on the device."""

    def __init__(self) -> None:
        self._guesses: dict[Sequence, tuple[int, list[int]]] = {}  # made behind so many response tokens
        self.forget()

    def forget(self) -> None:
        """Start anew: too many sequences run, or guesses cannot be checked."""
        self._drafter, self._guesses = Drafter(), {}
        self._tokens = self._passes = 0.0
        self.active = False

    def guesses(self, running: list[Sequence]) -> list[list[int]] | None:
        """Return a guess for every running sequence, or None where checking them does not pay."""
        self._drafter.keep(running)
        self._guesses = {sequence: self._follow(sequence) for sequence in running}
        if self._passes >= _FEWEST:
            self.active = self._tokens >= (_END if self.active else _BEGIN) * self._passes
        if self._passes > _MEMORY:
            self._tokens, self._passes = self._tokens / 2, self._passes / 2
        found = [guess for _, guess in self._guesses.values()]
        return found if self.active and any(found) else None

    def _follow(self, sequence: Sequence) -> tuple[int, list[int]]:
        """Compare the last guess, and those that would have come after it, with what was written since."""
        if sequence not in self._guesses:
            return self._next(sequence, len(sequence.ids))
        at, guess = self._guesses[sequence]
        while True:
            # A pass yields the tokens of its guess that came true, and the one after them.
            came = sequence.ids[at : at + len(guess) + 1]
            true = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(guess, came)))
            if len(came) <= true:
                return at, guess
            self._tokens, self._passes = self._tokens + true + 1, self._passes + 1
            at, guess = self._next(sequence, at + true + 1)

    def _next(self, sequence: Sequence, at: int) -> tuple[int, list[int]]:
        self._drafter.read(sequence, at)
        return at, self._drafter.guess(sequence, at)


def accepted(guess: list[int], drawn: list[int]) -> int:
    """Return how many of the tokens drawn behind a sequence and its guess are its own: up to the first wrong guess."""
    return 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(guess, drawn)))


def _tokens(sequence: Sequence, start: int, stop: int) -> list[int]:
    """Tokens [start, stop) of prompt and response."""
    prompt = sequence.request.prompt.ids
    head = prompt[start:stop] if start < len(prompt) else []
    return head + sequence.ids[max(0, start - len(prompt)) : max(0, stop - len(prompt))]
