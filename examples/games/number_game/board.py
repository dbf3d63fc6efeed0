"""The number game: tiles with numbers lie on a grid, and are to be touched in ascending order."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from phone.drawing import COLOURS, GROUND, button
from PIL import Image, ImageDraw

from whet.errors import UserError

SHADES = list(COLOURS.values())


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile; its sides are fractions of the screen."""

    number: int
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        """Return the point in its middle."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


class NumberBoard:
    """An app for the simulated device. A right number is taken off the board; a wrong one is counted in `mistakes`."""

    def __init__(self, seed: int, columns: int = 3, rows: int = 4, count: int = 5, highest: int = 99) -> None:
        if not 1 <= count <= columns * rows or count > highest:
            raise UserError(f"count={count}: {columns} × {rows} cells and numbers up to {highest} do not have as many")
        rng = Random(f"number game {seed}")
        numbers = rng.sample(range(1, highest + 1), count)
        cells = rng.sample(range(columns * rows), count)
        self.tiles = [_tile(rng, number, cell, columns, rows) for number, cell in zip(numbers, cells)]
        self.mistakes = 0

    @property
    def wanted(self) -> Tile:
        """Return the tile that is to be touched next."""
        return min(self.tiles, key=lambda tile: tile.number)

    def tap(self, x: float, y: float) -> bool:
        """Take a touch. Beside all tiles nothing happens."""
        for tile in self.tiles:
            if tile.left <= x <= tile.right and tile.top <= y <= tile.bottom:
                if tile is self.wanted:
                    self.tiles.remove(tile)
                    return True
                self.mistakes += 1
        return False

    def key(self, name: str) -> bool:
        """Take no notice of keys."""
        return False

    def draw(self, size: tuple[int, int]) -> Image.Image:
        """Draw the tiles that are left, each number in a colour of its own up to 9."""
        picture = Image.new("RGB", size, GROUND)
        pen = ImageDraw.Draw(picture)
        for tile in self.tiles:
            box = (tile.left * size[0], tile.top * size[1], tile.right * size[0], tile.bottom * size[1])
            button(pen, box, SHADES[(tile.number - 1) % len(SHADES)], str(tile.number))
        return picture


def _tile(rng: Random, number: int, cell: int, columns: int, rows: int) -> Tile:
    """Place a tile somewhere in its cell, over two thirds of it and more."""
    part = rng.uniform(0.66, 0.8)
    x, y = (rng.uniform(0.04, 0.96 - part) for _ in range(2))
    left, top = (cell % columns + x) / columns, (cell // columns + y) / rows
    return Tile(number, left, top, left + part / columns, top + part / rows)
