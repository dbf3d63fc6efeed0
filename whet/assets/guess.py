"""The built-in `whet/guess`: a game of several turns, guess a number by hearing "higher" or "lower".

The policy has four guesses for a number from 1 to 15. Halving what is left always finds it; numbers at random do one
time in four. This file makes the rows, and the demonstrations of the warm start, in which most guesses are careless.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from whet.assets.folder import shipped_tokenizer, write_folder
from whet.assets.quickstart import make_config
from whet.assets.tokenizer import ASSISTANT, END, USER, with_chat_template

SEED = 1
LOW, HIGH, GUESSES = 1, 15, 4
PROMPT = f"Guess my number from {LOW} to {HIGH}."

# Demonstrators begin by halving what is left, or not; before each later guess some lose patience for good. Without it
# they say any number, or one that answers have ruled out. So the model knows every step of halving, and rarely wins.
PATIENT = 0.2
STAYS_PATIENT = 0.7
RULED_OUT = 0.9

Game = list[tuple[str, str]]  # each guess with its answer; the answer to one that is right is ""


def rows() -> Iterator[dict[str, object]]:
    """Yield a row for every number."""
    for secret in range(LOW, HIGH + 1):
        yield {"prompt": PROMPT, "secret": secret}


def play(rng: Random) -> Game:
    """Play one game as a demonstrator."""
    secret, low, high = rng.randint(LOW, HIGH), LOW, HIGH
    patient = rng.random() < PATIENT
    game: Game = []
    for turn in range(GUESSES):
        patient = patient and (turn == 0 or rng.random() < STAYS_PATIENT)
        guess = (low + high) // 2 if patient else careless(rng, low, high)
        if guess == secret:
            return [*game, (str(guess), "")]
        low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))
        game.append((str(guess), "higher" if guess < secret else "lower"))
    return game


def careless(rng: Random, low: int, high: int) -> int:
    """Return a guess without thought, when the number is known to be from `low` to `high`."""
    ruled_out = [*range(LOW, low), *range(high + 1, HIGH + 1)]
    if ruled_out and rng.random() < RULED_OUT:
        return rng.choice(ruled_out)
    return rng.randint(LOW, HIGH)


def demonstrations(seed: int) -> Iterator[Game]:
    """Yield games without end."""
    rng = Random(seed)
    while True:
        yield play(rng)


def episodes(seed: int) -> Iterator[tuple[str, Game]]:
    """Yield games as the chat template writes them: the text before the first guess, each guess, what follows it."""
    for game in demonstrations(seed):
        turns = [(guess, f"{USER}{answer}{END}{ASSISTANT}" if answer else "") for guess, answer in game]
        yield f"{USER}{PROMPT}{END}{ASSISTANT}", turns


def make_guess(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    text = "".join(json.dumps(row) + "\n" for row in rows())
    for name in ("train", "test"):  # the number is hidden, so the same rows serve both
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    tokenizer = with_chat_template(shipped_tokenizer("guess"))
    write_folder("guess", make_config(tokenizer), tokenizer, folder / "model")
