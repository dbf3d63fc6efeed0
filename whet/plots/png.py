"""Charts as PNG files, drawn by Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable

from PIL import Image, ImageColor, ImageDraw, ImageFont

from whet.plots.chart import Area, Dot, Drawing, Text
from whet.plots.picture import DARK, LIGHT, colour_of, printable

_SCALE = 2  # pixels of a PNG to one of the drawing
_SMOOTHING = 2  # drawn larger and reduced, as Pillow has no antialiasing


def to_png(drawing: Drawing, dark: bool = False) -> bytes:
    """Write a drawing as PNG at twice its size."""
    colours, scale = DARK if dark else LIGHT, _SCALE * _SMOOTHING
    size = (round(drawing.width * scale), round(drawing.height * scale))
    picture = Image.new("RGB", size, colours["paper"])
    pen = ImageDraw.Draw(picture, "RGBA")

    def paint(colour: str | int, opacity: float = 1.0) -> tuple[int, ...]:
        return (*ImageColor.getrgb(colour_of(colour, colours))[:3], round(255 * opacity))

    place: Callable[[tuple[float, float]], tuple[float, float]] = lambda point: (point[0] * scale, point[1] * scale)  # noqa: E731
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            font = ImageFont.load_default(shape.size * scale)
            text, spot = printable(shape.text), place((shape.x, shape.y))
            pen.text(spot, text, paint("ink"), font=font, anchor=anchors[shape.anchor])
        elif isinstance(shape, Dot):
            pen.circle(place((shape.x, shape.y)), shape.radius * scale, paint(shape.colour))
        elif isinstance(shape, Area):
            pen.polygon([place(point) for point in shape.points], paint(shape.colour, shape.opacity))
        else:
            points = [place(point) for point in shape.points]
            pen.line(points, paint(shape.colour, shape.opacity), max(1, round(shape.width * scale)), joint="curve")
    reduced = picture.resize((size[0] // _SMOOTHING, size[1] // _SMOOTHING), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    reduced.save(file, "PNG", optimize=True)
    return file.getvalue()
