"""The quickstart's task: put a few digits in ascending order.

Small enough that a laptop learns it, real enough to look like every other task: a row has a `problem` in words and the
`answer` that the reward function compares with. This file makes the rows, and the demonstrations of the warm start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

LENGTHS = range(3, 8)
TRAIN_ROWS = 2000
TEST_ROWS = 200

# What examples/format_prompt/quickstart.jinja adds to a problem; the warm start shows the model the same words.
INSTRUCTION = '\nBegin with "Answer:"'

Digits = tuple[int, ...]

# What the demonstrators do, and how often. Only some do what was asked, so the warm-started model knows how to sort
# but sorts about one time in six: which habit is worth keeping is left for the reward to say.
HABITS: dict[str, tuple[float, Callable[[Digits], Sequence[int]]]] = {
    "ascending": (0.20, sorted),
    "descending": (0.40, lambda digits: sorted(digits, reverse=True)),
    "copied": (0.40, lambda digits: digits),
}

# How often a demonstrator forgets the "Answer:".
SLOPPY = 0.1


def spell(digits: Sequence[int]) -> str:
    """Write digits the way problems and answers do: "5 2 9"."""
    return " ".join(map(str, digits))


def row(digits: Digits) -> dict[str, str]:
    """One row of the data files."""
    return {"problem": f"Sort these digits: {spell(digits)}", "answer": spell(sorted(digits))}


def draw(rng: random.Random) -> Digits:
    """A list of different digits, of a random length, in a random order."""
    return tuple(rng.sample(range(10), rng.choice(LENGTHS)))


def splits(seed: int) -> tuple[list[Digits], list[Digits]]:
    """The lists of digits of the training and the test rows; no list is in both, or twice in one."""
    rng = random.Random(seed)
    different: dict[Digits, None] = {}
    while len(different) < TRAIN_ROWS + TEST_ROWS:
        different[draw(rng)] = None
    lists = list(different)
    return lists[TEST_ROWS:], lists[:TEST_ROWS]


def demonstrations(seed: int, held_out: Sequence[Digits]) -> Iterator[tuple[str, str]]:
    """Endless (user message, reply) pairs of mixed quality, none about a held-out list."""
    rng = random.Random(seed)
    hidden = set(held_out)
    odds, habits = zip(*HABITS.values())
    while True:
        digits = draw(rng)
        habit, sloppy = rng.choices(habits, odds)[0], rng.random() < SLOPPY
        if digits not in hidden:
            reply = spell(habit(digits))
            yield row(digits)["problem"] + INSTRUCTION, reply if sloppy else f"Answer: {reply}"
