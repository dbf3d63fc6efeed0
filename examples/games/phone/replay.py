"""Replays: episodes as animated pictures, a frame for each action, with a mark where the screen was touched."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw

from phone.drawing import font

SECONDS = 0.9  # of a frame
SMALLEST = 240  # pixels: smaller screens are enlarged by a whole number
LINE = 22  # pixels of a line of text
MARK = (255, 0, 160)


@dataclass(slots=True)
class Replay:
    """The frames of one episode, written into a folder."""

    folder: Path
    suffix: str = ".gif"  # or .webp
    _frames: list[Image.Image] = field(default_factory=list)
    _name: str = "episode"
    _goal: str = ""

    def begin(self, name: str, goal: str) -> None:
        """Forget what was, and name the next episode."""
        self._name, self._goal, self._frames = re.sub(r"[^\w.-]", "_", name)[:60], goal, []

    def add(self, picture: Image.Image, said: str, reward: float, points: Sequence[tuple[int, int]] = ()) -> None:
        """Add the screen that the model saw, what it did there and what that earned."""
        self._frames.append(frame(picture, self._goal, f"{said}  {reward:+.2f}" if reward else said, points))

    def write(self) -> Path | None:
        """Write the episode under a name that is free; None if it has no frames."""
        if not self._frames:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (f"{self._name}{f'-{i}' if i else ''}{self.suffix}" for i in itertools.count())
        for name in names:
            path = self.folder / name
            try:
                with path.open("xb") as file:  # several episodes of a row are written at the same time
                    _save(file, self._frames, self.suffix)
            except FileExistsError:
                continue
            self._frames = []
            return path
        raise AssertionError


def frame(picture: Image.Image, goal: str, said: str, points: Sequence[tuple[int, int]]) -> Image.Image:
    """Return an enlarged screen with marks, the goal above and the action below."""
    times = max(1, -(-SMALLEST // max(picture.size)))
    width, height = (side * times for side in picture.size)
    whole = Image.new("RGB", (width, height + 2 * LINE), (20, 20, 20))
    whole.paste(picture.resize((width, height), Image.Resampling.NEAREST), (0, LINE))
    pen = ImageDraw.Draw(whole)
    places = [((x + 0.5) * times, (y + 0.5) * times + LINE) for x, y in points]
    if len(places) > 1:
        pen.line(places, fill=MARK, width=3)
    radius = max(6, width // 24)
    for x, y in places:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=MARK, width=3)
    for top, text in ((0, goal), (height + LINE, said)):
        pen.text((4, top + LINE / 2), _fitting(" ".join(text.split()), width), (240, 240, 240), font(14), anchor="lm")
    return whole


def _fitting(text: str, width: int) -> str:
    """Cut a text that is wider than the picture."""
    letters = font(14)
    while text and letters.getlength(text) > width - 8:
        text = text[:-2].rstrip("…") + "…" if len(text) > 2 else ""
    return text


def _save(file: object, frames: Sequence[Image.Image], suffix: str) -> None:
    size = tuple(max(each.size[axis] for each in frames) for axis in (0, 1))  # a phone may be turned
    padded = [Image.new("RGB", size) for _ in frames]
    for whole, each in zip(padded, frames):
        whole.paste(each, (0, 0))
    padded[0].save(
        file,  # type: ignore[arg-type]
        format="WEBP" if suffix == ".webp" else "GIF",
        save_all=True,
        append_images=padded[1:],
        duration=int(SECONDS * 1000),
        loop=0,
    )
