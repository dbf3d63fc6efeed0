"""Buttons with labels, and the colours that both games use."""

from __future__ import annotations

from functools import cache

from PIL import ImageDraw, ImageFont

GROUND = (124, 118, 108)  # near the mean of a vision model's pictures
SHADE = (60, 58, 54)
CLOSE = (0.35, 0.4, 0.65, 0.6)  # the cross of a window: left, top, right, bottom, in fractions of the screen
COLOURS = {
    "red": (240, 30, 30),
    "green": (20, 200, 50),
    "blue": (40, 60, 250),
    "white": (250, 250, 250),
    "yellow": (240, 210, 20),
    "purple": (150, 40, 190),
    "cyan": (30, 200, 220),
    "orange": (240, 130, 20),
    "pink": (240, 130, 190),
}

Box = tuple[float, float, float, float]


@cache
def font(pixels: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's own font in a size."""
    return ImageFont.load_default(max(6, pixels))


def button(pen: ImageDraw.ImageDraw, box: Box, fill: tuple[int, int, int], label: str) -> None:
    """Draw a rounded box with a label in its middle, as large as fits."""
    left, top, right, bottom = box
    pen.rounded_rectangle(box, radius=min(right - left, bottom - top) / 6, fill=fill)
    pixels = int(min((bottom - top) * 0.7, 1.6 * (right - left) / max(1, len(label))))
    dark = 0.3 * fill[0] + 0.59 * fill[1] + 0.11 * fill[2] > 140
    ink = (20, 20, 20) if dark else (250, 250, 250)
    pen.text(((left + right) / 2, (top + bottom) / 2), label, fill=ink, font=font(pixels), anchor="mm")
