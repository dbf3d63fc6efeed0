"""The prompts that benchmarks share: word problems in GSM8K's manner, made here so that nothing need be downloaded."""

from __future__ import annotations

import random

_NAMES = ("Ana", "Ben", "Chen", "Dara", "Emil", "Fay", "Goran", "Hana")
_THINGS = ("apples", "pencils", "tickets", "marbles", "cookies", "stamps", "books", "shells")
_STORIES = (
    "{a} has {x} {t} and buys {y} more. Then {a} shares all of them equally with {b}. How many {t} does each get?",
    "{a} packs {t} into boxes of {x}. There are {y} full boxes and {z} {t} left over. {b} takes a third of everything "
    "for the school fair. How many {t} are left for {a}?",
    "In the morning {a} sold {x} {t}, and in the afternoon {y} times as many as {b}, who sold {z}. Each of the {t} "
    "costs 3 dollars. How many dollars did {a} and {b} earn together?",
    "{b} counts {x} {t} on Monday and on every following day {y} more than on the day before. How many {t} does {b} "
    "count from Monday to Friday?",
)


def problems(count: int, seed: int = 0) -> list[str]:
    """`count` different word problems."""
    rng = random.Random(seed)
    return [
        rng.choice(_STORIES).format(
            a=rng.choice(_NAMES[:4]),
            b=rng.choice(_NAMES[4:]),
            t=rng.choice(_THINGS),
            x=rng.randint(3, 40),
            y=rng.randint(2, 12),
            z=rng.randint(3, 60),
        )
        for _ in range(count)
    ]
