"""Line charts as plain shapes: panels are laid out once, and written as SVG or PNG by the modules beside this one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 360, 220  # of a panel, in pixels
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 32, 30  # margins of a panel
LEGEND_ROW, LEGEND_CHAR = 20, 6.4
_MOST_DOTS = 30
INK, FAINT = "ink", "faint"  # colours by role; a number is a series' place in the palette


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: points (x, y) in the order of x, and a band (x, low, high) around them where there are several runs."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    band: Sequence[tuple[float, float, float]] = ()
    faint: bool = False  # drawn thin and without dots: training beside validation


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart with a title."""

    title: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; `colour` is a role or a place in the palette."""

    points: Sequence[tuple[float, float]]
    colour: str | int
    width: float = 1.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon."""

    points: Sequence[tuple[float, float]]
    colour: str | int
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str | int


@dataclass(frozen=True, slots=True)
class Text:
    """Text on a baseline; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    size: int = 11
    anchor: str = "start"


Shape = Line | Area | Dot | Text


@dataclass(slots=True)
class Drawing:
    """Shapes on a sheet of this size; (0, 0) is the upper left corner."""

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)


def lay_out(panels: Sequence[Panel], columns: int = 2) -> Drawing:
    """Place the panels in rows of `columns`, above a legend if there is more than one name."""
    columns = min(columns, max(1, len(panels)))
    rows = math.ceil(len(panels) / columns)
    drawing = Drawing(WIDTH * columns, HEIGHT * max(1, rows))
    steps = [x for panel in panels for series in panel.series for x, _ in _finite(series.points)] or [0.0]
    for i, panel in enumerate(panels):
        _draw_panel(drawing, panel, WIDTH * (i % columns), HEIGHT * (i // columns), (min(steps), max(steps)))
    _draw_legend(drawing, panels)
    _draw_caption(drawing, panels)
    return drawing


def _draw_panel(drawing: Drawing, panel: Panel, left: float, top: float, steps: tuple[float, float]) -> None:
    # 1. Ranges: the steps of all panels; finite points of all series here, widened to round numbers.
    points = [point for series in panel.series for point in _finite(series.points)]
    edges = [(x, y) for series in panel.series for x, low, high in series.band for y in (low, high)]
    ys = [y for _, y in points + _finite(edges)] or [0.0, 1.0]
    x_ticks, y_ticks = ticks(*steps, whole=True), ticks(min(ys), max(ys))
    x_low, x_high = steps[0], max(steps[1], steps[0] + 1)
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        right = (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return left + LEFT + right, top + HEIGHT - BOTTOM - up

    # 2. Title, grid and numbers at the axes.
    shapes = drawing.shapes
    shapes.append(Text(left + LEFT, top + 20, panel.title, 13))
    for tick in y_ticks:
        (_, y) = at(x_low, tick)
        shapes.append(Line([(left + LEFT, y), (left + WIDTH - RIGHT, y)], FAINT))
        shapes.append(Text(left + LEFT - 6, y + 4, f"{tick:.4g}", anchor="end"))
    for tick in x_ticks:
        if x_low <= tick <= x_high:
            shapes.append(Text(at(tick, y_low)[0], top + HEIGHT - 11, f"{tick:g}", anchor="middle"))
    # 3. Bands below, then lines, then dots where they are few enough to be told apart.
    for series in panel.series:
        band = [(x, low, high) for x, low, high in series.band if math.isfinite(low) and math.isfinite(high)]
        if len(band) > 1:
            upper, lower = [at(x, high) for x, _, high in band], [at(x, low) for x, low, _ in band]
            shapes.append(Area([*upper, *reversed(lower)], series.colour, 0.18))
    dotted = has_dots(panel)
    for series in sorted(panel.series, key=lambda each: not each.faint):
        places = [at(x, y) for x, y in _finite(series.points)]
        if len(places) > 1:
            thin = series.faint
            shapes.append(Line(places, series.colour, 1.0 if thin else 1.8, 0.6 if thin else 1.0))
        if len(places) == 1 or (dotted and not series.faint):
            shapes += [Dot(x, y, 2.6, series.colour) for x, y in places]


def has_dots(panel: Panel) -> bool:
    """Return True if the points of a chart are few enough to be told apart; then all its thick lines have dots."""
    return all(len(series.points) <= _MOST_DOTS for series in panel.series if not series.faint)


def _draw_legend(drawing: Drawing, panels: Sequence[Panel]) -> None:
    names = {series.name: series.colour for panel in panels for series in panel.series if series.name}
    if len(names) < 2:
        return
    x, y = float(LEFT), drawing.height + 6
    for name, colour in names.items():
        width = 34 + LEGEND_CHAR * len(name)
        if x > LEFT and x + width > drawing.width - RIGHT:
            x, y = float(LEFT), y + LEGEND_ROW
        drawing.shapes.append(Line([(x, y), (x + 18, y)], colour, 3))
        drawing.shapes.append(Text(x + 24, y + 4, name))
        x += width
    drawing.height = y + LEGEND_ROW


def caption(panels: Sequence[Panel]) -> str:
    """Explain the x axis and, where they occur, thin lines and bands."""
    series = [each for panel in panels for each in panel.series]
    parts = ["x: step"]
    if any(each.faint for each in series):
        parts.append("thin: training, thick: validation")
    if any(each.band for each in series):
        parts.append("bands: lowest to highest run")
    return "; ".join(parts)


def _draw_caption(drawing: Drawing, panels: Sequence[Panel]) -> None:
    drawing.height += 12
    drawing.shapes.append(Text(LEFT, drawing.height - 4, caption(panels), 10))
    drawing.height += 6


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Return two to seven round numbers that span low to high."""
    span = high - low or abs(high) or 1.0
    if not math.isfinite(span) or span < 1e-300:
        return [low, low + 1.0]
    size = 10.0 ** math.floor(math.log10(span / 4))
    size = next(size * times for times in (1, 2, 5, 10) if span / (size * times) <= 5)
    size = max(1.0, math.ceil(size)) if whole else size
    first, last = math.floor(low / size), math.ceil(high / size)
    last = max(last, first + 1)
    return [each * size for each in range(first, last + 1)]
