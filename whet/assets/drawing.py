"""Coloured shapes on a grey ground, drawn by Pillow: the pictures of the built-in vision tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

SIDE = 84  # pixels: three by three tokens for a model with patches of 14 pixels, merged two by two
CELLS = 3  # places for shapes in a row and in a column
GROUND = (124, 118, 108)  # about zero for the model: a small one learns sooner what stands out from it
COLOURS = {"red": (240, 30, 30), "green": (20, 200, 50), "blue": (40, 60, 250), "white": (250, 250, 250)}
KINDS = ("circle", "square", "triangle")

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: its centre and half its width, in pixels."""

    kind: str
    colour: str
    x: float
    y: float
    radius: float


def scatter(rng: Random, colours: Sequence[str]) -> list[Shape]:
    """Shapes of the given colours, at most CELLS² of them, in cells of their own and somewhere about the middle."""
    size = SIDE / CELLS
    cells = rng.sample(range(CELLS * CELLS), len(colours))
    return [
        _somewhere(rng, colour, (cell % CELLS + 0.5) * size, (cell // CELLS + 0.5) * size)
        for cell, colour in zip(cells, colours)
    ]


def _somewhere(rng: Random, colour: str, x: float, y: float) -> Shape:
    """A shape of this colour close to (x, y)."""
    return Shape(rng.choice(KINDS), colour, x + rng.uniform(-5, 5), y + rng.uniform(-5, 5), rng.uniform(7, 9))


def blank(side: int = SIDE) -> Image.Image:
    """A picture of nothing."""
    return Image.new("RGB", (side, side), GROUND)


def draw(shapes: Sequence[Shape], side: int = SIDE) -> Image.Image:
    """The picture of these shapes."""
    picture = blank(side)
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        box = (shape.x - shape.radius, shape.y - shape.radius, shape.x + shape.radius, shape.y + shape.radius)
        fill = COLOURS[shape.colour]
        if shape.kind == "circle":
            pen.ellipse(box, fill=fill)
        elif shape.kind == "square":
            pen.rectangle(box, fill=fill)
        else:
            pen.polygon([(box[0], box[3]), (box[2], box[3]), (shape.x, box[1])], fill=fill)
    return picture


def draw_triangle(corners: Sequence[Point], side: int = SIDE) -> Image.Image:
    """A triangle, its first corner marked with a red dot."""
    picture = blank(side)
    pen = ImageDraw.Draw(picture)
    pen.polygon(list(corners), fill=COLOURS["white"])
    x, y = corners[0]
    pen.ellipse((x - 5, y - 5, x + 5, y + 5), fill=COLOURS["red"])
    return picture
