"""Charts as PNG files, drawn by Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable

from PIL import Image, ImageColor, ImageDraw, ImageFont

from whet.plots.chart import Area, Dot, Drawing, Text
from whet.plots.picture import DARK, LIGHT, colour_of, printable

_SCALE = 2  # pixels of a PNG to one of the drawing
_SMOOTHING = 2  # drawn larger and reduced, as Pillow has no antialiasing
_EAST_ASIAN = 0x2E80  # the first character that Pillow's own font has no glyph for, of those that names may hold
_FONTS = (  # by their files, in the order in which they are taken; Pillow looks in the folders of the system
    "NotoSansCJK-Regular.ttc",
    "NotoSansSC-Regular.otf",
    "SourceHanSansSC-Regular.otf",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "DroidSansFallbackFull.ttf",
    "PingFang.ttc",
    "Hiragino Sans GB.ttc",
    "msyh.ttc",
    "simhei.ttf",
)


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
            text, spot = printable(shape.text), place((shape.x, shape.y))
            pen.text(spot, text, paint("ink"), font=_font(text, shape.size * scale), anchor=anchors[shape.anchor])
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


def _font(text: str, size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's own font, or for Chinese one of the system; where there is none, boxes are drawn."""
    if any(ord(char) >= _EAST_ASIAN for char in text):
        for name in _FONTS:
            try:
                return ImageFont.truetype(name, size)
            except OSError:
                continue
    return ImageFont.load_default(size)
