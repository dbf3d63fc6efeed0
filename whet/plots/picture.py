"""Charts as SVG or PNG files. A notebook shows a `Plot` by itself; no plotting library is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from whet.errors import UserError
from whet.plots.chart import Area, Dot, Drawing, Line, Text

PALETTE = ("#3b6ea8", "#c8553d", "#3f8f5f", "#8a5fa8", "#c08a1e", "#2f8f9d", "#a83b6e", "#6b6b6b")
LIGHT = {"ink": "#333333", "faint": "#dddddd", "paper": "#ffffff"}
DARK = {"ink": "#dddddd", "faint": "#444444", "paper": "#1b1d21"}
_SCALE, _SMOOTHING = (
    2,
    2,
)  # pixels of a PNG to one of the drawing; drawn larger and reduced, as Pillow has no antialiasing


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of charts. A notebook shows it; `save` writes it to a file."""

    drawing: Drawing

    @property
    def svg(self) -> str:
        """The picture in SVG, dark where the reader's system is."""
        return to_svg(self.drawing)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file that ends in .svg or .png."""
        file = Path(os.path.expanduser(path))
        if file.suffix not in (".svg", ".png"):
            raise UserError(f"plots are SVG or PNG: {str(path)!r} must end in .svg or .png")
        try:
            if file.suffix == ".svg":
                file.write_text(self.svg, encoding="utf-8")
            else:
                file.write_bytes(to_png(self.drawing))
        except OSError as error:
            raise UserError(f"{file}: cannot be written: {error.strerror or error}") from error
        return file


def to_svg(drawing: Drawing) -> str:
    """Write a drawing as SVG with the colours of light and dark systems."""
    width, height = round(drawing.width), round(drawing.height)
    light, dark = (_css(colours) for colours in (LIGHT, DARK))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f"<style>{light} @media (prefers-color-scheme: dark) {{ {dark} }}</style>",
        '<rect width="100%" height="100%" class="paper"/>',
        *(_svg_shape(shape) for shape in drawing.shapes),
    ]
    return "\n".join([*parts, "</svg>\n"])


def _css(colours: dict[str, str]) -> str:
    return " ".join(
        [
            f".paper {{ fill: {colours['paper']} }}",
            f"text {{ fill: {colours['ink']} }}",
            f".faint {{ stroke: {colours['faint']} }}",
        ]
    )


def _svg_shape(shape: Line | Area | Dot | Text) -> str:
    if isinstance(shape, Text):
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        text = escape(_printable(shape.text))
        return f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}"{anchor}>{text}</text>'
    if isinstance(shape, Dot):
        return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius}" fill="{_hex(shape.colour, LIGHT)}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
    if isinstance(shape, Area):
        return f'<polygon points="{points}" fill="{_hex(shape.colour, LIGHT)}" fill-opacity="{shape.opacity}"/>'
    if isinstance(shape.colour, str):
        return f'<polyline points="{points}" fill="none" class="{shape.colour}" stroke-width="{shape.width}"/>'
    faded = "" if shape.opacity == 1 else f' stroke-opacity="{shape.opacity}"'
    stroke = _hex(shape.colour, LIGHT)
    return f'<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="{shape.width}"{faded}/>'


def to_png(drawing: Drawing, dark: bool = False) -> bytes:
    """Write a drawing as PNG at twice its size."""
    import io

    from PIL import Image, ImageColor, ImageDraw, ImageFont

    colours, scale = DARK if dark else LIGHT, _SCALE * _SMOOTHING
    size = (round(drawing.width * scale), round(drawing.height * scale))
    picture = Image.new("RGB", size, colours["paper"])
    pen = ImageDraw.Draw(picture, "RGBA")

    def paint(colour: str | int, opacity: float = 1.0) -> tuple[int, ...]:
        return (*ImageColor.getrgb(_hex(colour, colours))[:3], round(255 * opacity))

    place: Callable[[tuple[float, float]], tuple[float, float]] = lambda point: (point[0] * scale, point[1] * scale)  # noqa: E731
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            font = ImageFont.load_default(shape.size * scale)
            text, spot = _printable(shape.text), place((shape.x, shape.y))
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


def _hex(colour: str | int, roles: dict[str, str]) -> str:
    return roles[colour] if isinstance(colour, str) else PALETTE[colour % len(PALETTE)]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)
