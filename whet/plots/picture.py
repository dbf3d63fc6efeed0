"""Charts as SVG files, or PNG (`png.py`). A notebook shows a `Plot` by itself; no plotting library is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from whet.errors import UserError
from whet.plots.chart import Area, Dot, Drawing, Line, Text

PALETTE = ("#3b6ea8", "#c8553d", "#3f8f5f", "#8a5fa8", "#c08a1e", "#2f8f9d", "#a83b6e", "#6b6b6b")
LIGHT = {"ink": "#333333", "faint": "#dddddd", "paper": "#ffffff"}
DARK = {"ink": "#dddddd", "faint": "#444444", "paper": "#1b1d21"}


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
                from whet.plots.png import to_png

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
        text = escape(printable(shape.text))
        return f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}"{anchor}>{text}</text>'
    if isinstance(shape, Dot):
        fill = colour_of(shape.colour, LIGHT)
        return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius}" fill="{fill}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
    if isinstance(shape, Area):
        return f'<polygon points="{points}" fill="{colour_of(shape.colour, LIGHT)}" fill-opacity="{shape.opacity}"/>'
    if isinstance(shape.colour, str):
        return f'<polyline points="{points}" fill="none" class="{shape.colour}" stroke-width="{shape.width}"/>'
    faded = "" if shape.opacity == 1 else f' stroke-opacity="{shape.opacity}"'
    stroke = colour_of(shape.colour, LIGHT)
    return f'<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="{shape.width}"{faded}/>'


def colour_of(colour: str | int, roles: dict[str, str]) -> str:
    """Return the colour of a role, or of a place in the palette."""
    return roles[colour] if isinstance(colour, str) else PALETTE[colour % len(PALETTE)]


def printable(text: str) -> str:
    """Return a text without characters that no font has."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
