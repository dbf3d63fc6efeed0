"""Charts as one interactive HTML page that needs no network: plotly's JavaScript is written into it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from whet.errors import UserError
from whet.plots.chart import Panel, Series, caption, has_dots
from whet.plots.picture import PALETTE

_COLUMNS = 2


def to_html(panels: Sequence[Panel], title: str) -> str:
    """Write the charts as a page: zoom, hover, and a legend that switches runs on and off in all charts at once."""
    try:
        from plotly.graph_objects import Figure, Scatter
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise UserError("an HTML page needs plotly: pip install 'whet[plots]'; .svg and .png need nothing") from error
    rows = -(-len(panels) // _COLUMNS)
    columns = min(_COLUMNS, len(panels))
    titles = [escape(panel.title) for panel in panels]
    figure: Figure = make_subplots(rows=rows, cols=columns, subplot_titles=titles, vertical_spacing=0.24 / rows)
    named: set[str] = set()
    for i, panel in enumerate(panels):
        dotted = has_dots(panel)
        cell = {"row": i // _COLUMNS + 1, "col": i % _COLUMNS + 1}
        for series in panel.series:
            if series.band:
                figure.add_trace(Scatter(**_band(series)), **cell)
            first = series.name not in named and not series.faint
            named |= {series.name} if first else set()
            figure.add_trace(Scatter(**_line(series, first, dotted)), **cell)
    figure.update_xaxes(matches="x")  # zooming one chart zooms all
    title = f"{escape(title)}<br><sup>{caption(panels)}</sup>"
    figure.update_layout(title=title, height=320 * rows + 80, template="plotly_white", hovermode="x unified")
    return str(figure.to_html(include_plotlyjs=True, full_html=True))


def _line(series: Series, in_legend: bool, dotted: bool) -> dict[str, Any]:
    name = escape(series.name)
    few = len(series.points) == 1 or (dotted and not series.faint)
    return {
        "x": [x for x, _ in series.points],
        "y": [y for _, y in series.points],
        "name": name + (" (training)" if series.faint else ""),
        "legendgroup": name,
        "showlegend": in_legend,
        "mode": "lines+markers" if few else "lines",
        "opacity": 0.6 if series.faint else 1.0,
        "line": {"color": PALETTE[series.colour % len(PALETTE)], "width": 1 if series.faint else 2},
    }


def _band(series: Series) -> dict[str, Any]:
    """Return the range of an arm's runs as a filled outline: up along the highest values, back along the lowest."""
    return {
        "x": [x for x, _, _ in series.band] + [x for x, _, _ in reversed(series.band)],
        "y": [high for _, _, high in series.band] + [low for _, low, _ in reversed(series.band)],
        "legendgroup": escape(series.name),
        "showlegend": False,
        "hoverinfo": "skip",
        "mode": "lines",
        "fill": "toself",
        "opacity": 0.18,
        "line": {"width": 0, "color": PALETTE[series.colour % len(PALETTE)]},
    }
