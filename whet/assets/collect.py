"""The built-in `whet/collect`: a game with pictures, name what you see and the next shape appears.

A board hides three shapes, of which one is seen at a time; the policy has a few turns to name them all. This file draws
the boards, and makes the rows and the demonstrations of the warm start, whose last demonstrators mostly guess.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from PIL import Image

from whet.assets.drawing import COLOURS, KINDS, Shape, draw
from whet.assets.questions import IMAGE, Question
from whet.assets.vision_model import END, QWEN2_5, START, write_vision_folder

SEED = 1
SHAPES = 3
TURNS = 4  # of a demonstration at most
SIDE = 56  # pixels: two by two tokens
PROMPT = "Collect the shapes."
QUESTION = "What is this?"
LOOKS = 0.3  # how often the last demonstrators look before they say a name
NAMES = tuple(f"{colour} {kind}" for colour in COLOURS for kind in KINDS)
SPLITS = {"train": range(2000), "test": range(1_000_000, 1_000_120)}  # seeds of boards


class Board:
    """The shapes that are left, and the random numbers that their places come from."""

    def __init__(self, seed: int, shapes: int = SHAPES) -> None:
        self._rng = Random(f"board {seed}")
        self.names = self._rng.sample(NAMES, shapes)

    def picture(self) -> Image.Image:
        """Draw the first shape that is left, somewhere else each time."""
        colour, kind = self.names[0].split()
        radius = self._rng.uniform(12, 16)
        x, y = (self._rng.uniform(radius, SIDE - radius) for _ in "xy")
        return draw([Shape(kind, colour, x, y, radius)], SIDE)

    def name(self, said: str) -> bool:
        """Take the shape off if it was named; return True if it was."""
        if said != self.names[0]:
            return False
        del self.names[0]
        return True


def demonstrations(seed: int) -> Iterator[Question]:
    """Yield turns of games without end: the conversation up to a turn, and the name of what is seen."""
    rng = Random(seed)
    while True:
        board, asked, images = Board(rng.randrange(10**9, 2 * 10**9)), "", []
        for _ in range(TURNS):
            images.append(board.picture())
            asked += IMAGE + QUESTION
            yield Question(asked, board.names[0], NAMES, list(images), stem="")
            said = board.names[0] if rng.random() < 0.6 else rng.choice(NAMES)
            asked += f"{END}\n{START}assistant\n{said}{END}\n{START}user\n"
            if board.name(said) and not board.names:
                break


def make_collect(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    for name, seeds in SPLITS.items():
        text = "".join(json.dumps({"prompt": PROMPT, "seed": seed}) + "\n" for seed in seeds)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    write_vision_folder("collect", QWEN2_5, folder / "model")
