"""The built-in `whet/guess`: a game of several turns, guess a number by hearing "higher" or "lower".

The policy has six guesses for a number from 1 to 60. Halving what is left always finds it; guessing at random does one
time in ten. This file makes the rows, and the demonstrations of the warm start, in which most guesses are careless.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from whet.assets.folder import shipped_tokenizer, write_folder
from whet.assets.quickstart import make_config
from whet.assets.tokenizer import with_chat_template

SEED = 1
LOW, HIGH, GUESSES = 1, 60, 6
PROMPT = f"Guess my number from {LOW} to {HIGH}."

# How demonstrators come to a guess and how often: many do not look at the answers, so the model rarely wins.
HABITS = {"careless": 0.55, "careful": 0.10, "halving": 0.35}

Game = list[tuple[str, str]]  # each guess with its answer; the last answer is ""


def rows() -> Iterator[dict[str, object]]:
    """Yield a row for every number."""
    for secret in range(LOW, HIGH + 1):
        yield {"prompt": PROMPT, "secret": secret}


def play(rng: Random) -> Game:
    """Play one game as a demonstrator, whose habit may change with every guess."""
    secret, low, high = rng.randint(LOW, HIGH), LOW, HIGH
    game: Game = []
    for habit in rng.choices(list(HABITS), list(HABITS.values()), k=GUESSES):
        if habit == "careless":
            guess = rng.randint(LOW, HIGH)
        else:
            guess = (low + high) // 2 if habit == "halving" else rng.randint(low, high)  # of what is left
        if guess == secret:
            return [*game, (str(guess), "")]
        low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))
        game.append((str(guess), "higher" if guess < secret else "lower"))
    return game


def demonstrations(seed: int) -> Iterator[Game]:
    """Yield games without end."""
    rng = Random(seed)
    while True:
        yield play(rng)


def make_guess(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    text = "".join(json.dumps(row) + "\n" for row in rows())
    for name in ("train", "test"):  # the number is hidden, so the same rows serve both
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    tokenizer = with_chat_template(shipped_tokenizer("guess"))
    write_folder("guess", make_config(tokenizer), tokenizer, folder / "model")
