"""Line charts of metrics over steps, in SVG, which every notebook and browser shows: no plotting library is needed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from whet.errors import UserError

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, COLUMNS = 340, 200, 2
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 30, 28  # margins of a panel
INK, FAINT, LINE = "#333", "#ddd", "#3b6ea8"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture in SVG. A notebook shows it; `save` writes it to a file."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file that ends in .svg."""
        file = Path(os.path.expanduser(path))
        if file.suffix != ".svg":
            raise UserError(f"plots are SVG: {str(path)!r} must end in .svg")
        try:
            file.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{file}: cannot be written: {error.strerror or error}") from error
        return file


def line_charts(curves: Mapping[str, Points]) -> Plot:
    """Draw one panel for each curve, two in a row; x is the step."""
    rows = math.ceil(len(curves) / COLUMNS)
    width, height = WIDTH * min(COLUMNS, max(1, len(curves))), HEIGHT * max(1, rows)
    parts = [
        f'<g transform="translate({WIDTH * (i % COLUMNS)},{HEIGHT * (i // COLUMNS)})">{_panel(name, points)}</g>'
        for i, (name, points) in enumerate(curves.items())
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    )
    return Plot("\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"]))


def _panel(name: str, points: Points) -> str:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_ticks, y_ticks = _ticks(min(xs), max(xs), whole=True), _ticks(min(ys), max(ys))
    x_low, x_high = min(x_ticks[0], min(xs)), max(x_ticks[-1], max(xs))
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        right = (x - x_low) / (x_high - x_low or 1) * (WIDTH - LEFT - RIGHT)
        up = (y - y_low) / (y_high - y_low or 1) * (HEIGHT - TOP - BOTTOM)
        return LEFT + right, HEIGHT - BOTTOM - up

    parts = [f'<text x="{LEFT}" y="18" fill="{INK}" font-size="13">{escape(name)}</text>']
    for tick in y_ticks:
        _, y = at(x_low, tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" fill="{INK}" text-anchor="end">{tick:.4g}</text>')
    for tick in x_ticks:
        x, _ = at(tick, y_low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 10}" fill="{INK}" text-anchor="middle">{tick:g}</text>')
    line = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="1.5"/>')
    if len(points) <= 30:
        places = [at(x, y) for x, y in points]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{LINE}"/>' for x, y in places]
    return "".join(parts)


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Return three to six round numbers that span low to high."""
    span = high - low or abs(high) or 1.0
    size = 10 ** math.floor(math.log10(span / 4))
    size = next(size * times for times in (1, 2, 5, 10) if span / (size * times) <= 5)
    size = max(1.0, math.ceil(size)) if whole else size
    first, last = math.floor(low / size), math.ceil(high / size)
    last = max(last, first + 1)
    return [each * size for each in range(first, last + 1)]
