"""Two plots in SVG, which every browser and every page of Markdown shows: bars and curves, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from whet.evals.statistics import Estimate

COLOURS = ("#3b6ea8", "#c4622d", "#4b8f4f", "#8a5aa3", "#a33b3b", "#2f8f8f", "#8f7a2f", "#5a5a5a")
INK, FAINT = "#333", "#ddd"
ROW, LABEL, PLOT, HEAD = 28, 150, 420, 40  # pixels


def bar_chart(title: str, bars: Sequence[tuple[str, Estimate]]) -> str:
    """A bar from 0 to 100 % for each name, with its interval."""
    height = HEAD + ROW * len(bars) + 30
    parts = [_text(LABEL, 22, title, size=15)]
    bottom = HEAD + ROW * len(bars)
    for percent in range(0, 101, 25):
        x = LABEL + PLOT * percent / 100
        parts += [_line(x, HEAD, x, bottom, FAINT), _text(x, bottom + 18, f"{percent} %", "middle")]
    for row, (name, value) in enumerate(bars):
        y = HEAD + ROW * row + 5
        parts.append(_text(LABEL - 8, y + 13, name, "end"))
        width = PLOT * _inside(value.mean)
        parts.append(f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{ROW - 10}" fill="{COLOURS[0]}"/>')
        if value.low is not None and value.high is not None:
            low, high = (LABEL + PLOT * _inside(each) for each in (value.low, value.high))
            middle = y + (ROW - 10) / 2
            parts += [_line(low, middle, high, middle, INK), _line(low, middle - 4, low, middle + 4, INK)]
            parts.append(_line(high, middle - 4, high, middle + 4, INK))
        end = LABEL + PLOT * _inside(max(value.mean, value.high or 0.0))
        parts.append(_text(end + 6, y + 13, f"{100 * value.mean:.1f} %"))
    return _svg(LABEL + PLOT + 80, height, parts)


def line_chart(title: str, curves: Mapping[str, Sequence[tuple[int, Estimate]]]) -> str:
    """A curve over k, on a scale of its logarithm, for each name; the interval is the shade around it."""
    left, tall = 60, 260
    most = max(k for points in curves.values() for k, _ in points)
    bottom = HEAD + tall

    def at(k: int, share: float) -> tuple[float, float]:
        return left + PLOT * math.log2(k) / math.log2(most), bottom - tall * _inside(share)

    parts = [_text(left, 22, title, size=15)]
    for percent in range(0, 101, 25):
        y = bottom - tall * percent / 100
        parts += [_line(left, y, left + PLOT, y, FAINT), _text(left - 8, y + 4, f"{percent} %", "end")]
    for k in sorted({k for points in curves.values() for k, _ in points}):
        parts.append(_text(at(k, 0)[0], bottom + 18, str(k), "middle"))
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        if all(value.low is not None and value.high is not None for _, value in points):
            edge = [at(k, value.low or 0.0) for k, value in points]
            edge += [at(k, value.high or 0.0) for k, value in reversed(points)]
            parts.append(f'<polygon points="{_points(edge)}" fill="{colour}" fill-opacity="0.15"/>')
        line = [at(k, value.mean) for k, value in points]
        parts.append(f'<polyline points="{_points(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in line]
        parts.append(_text(left + PLOT + 12, HEAD + 14 + 18 * number, name, colour=colour))
    return _svg(left + PLOT + 150, max(bottom + 30, HEAD + 20 + 18 * len(curves)), parts)


def _inside(share: float) -> float:
    return min(1.0, max(0.0, share))


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12, colour: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"
