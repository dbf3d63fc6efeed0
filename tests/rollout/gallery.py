"""An environment with pictures, for tests of their way through an episode."""

from __future__ import annotations

from typing import Any

from PIL import Image

from whet.types import Prompt


class Gallery:
    """Shows a picture of another size after each of two turns."""

    def __init__(self) -> None:
        self.turn = 0

    def reset(self, prompt: Prompt) -> Any:
        return Image.new("RGB", (56, 56), "red")

    def step(self, action: str) -> Any:
        self.turn += 1
        shown = Image.new("RGB", (56, 56 + 28 * self.turn), ("blue", "green", "white")[self.turn - 1])
        return {"text": "Where is <image>?", "images": [shown]}, 1.0, self.turn == 3, {}
