"""Rows with named columns, as metrics, samples and scores come back from a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from whet.errors import UserError

_SHOWN_ROWS, _SHOWN_COLUMNS, _CELL = 12, 8, 40


class Table(Sequence[dict[str, Any]]):
    """A sequence of rows, each a dict; `table["reward"]` is a column, `table[0]` a row, None a value that is not there.

    `to_pandas()` and `to_arrow()` give the same as a frame or an Arrow table.
    """

    def __init__(self, rows: Sequence[dict[str, Any]], first: Sequence[str] = ()) -> None:
        """`first` names columns that come before the others."""
        self._rows = [dict(row) for row in rows]
        names = dict.fromkeys(name for row in self._rows for name in row)
        self.columns = [*(name for name in first if name in names), *(name for name in names if name not in first)]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, key: Any) -> Any:
        """Return a column by its name, a row by its number, or a part of the table by a slice."""
        if isinstance(key, str):
            return self.column(key)
        if isinstance(key, slice):
            return Table(self._rows[key])
        return self._rows[key]

    def column(self, name: str) -> list[Any]:
        """Return the values of a column, None where a row has none."""
        if name not in self.columns:
            from whet.config import nearest

            near = nearest(name, self.columns) if isinstance(name, str) else None
            hint = f"did you mean {near}?" if near else f"there are {', '.join(self.columns) or 'none'}"
            raise UserError(f"the table has no column {name!r}; {hint}")
        return [row.get(name) for row in self._rows]

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.table({name: self.column(name) for name in self.columns})

    def to_pandas(self) -> Any:
        """Return a pandas frame; pandas must be installed."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(self._rows, columns=self.columns)

    def __repr__(self) -> str:
        names, lines = self._cut()
        widths = [max(len(line[i]) for line in [names, *lines]) for i in range(len(names))]
        text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in [names, *lines]]
        size = f"{len(self)} rows x {len(self.columns)} columns"
        more = self.columns[_SHOWN_COLUMNS:]
        also = (
            f"; also {', '.join(more[:_SHOWN_COLUMNS])}{', ...' if len(more) > _SHOWN_COLUMNS else ''}" if more else ""
        )
        return "\n".join([*text, f"[{size}{also}]"])

    def _repr_html_(self) -> str:
        names, lines = self._cut()
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        size = f"{len(self)} rows × {len(self.columns)} columns"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{size}</p>"

    def _cut(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and cells that fit on a screen: the first and the last rows."""
        names = self.columns[:_SHOWN_COLUMNS]
        half = _SHOWN_ROWS // 2
        whole = len(self) <= _SHOWN_ROWS
        rows = self._rows if whole else [*self._rows[:half], *self._rows[-half:]]
        lines = [[_cell(row.get(name)) for name in names] for row in rows]
        return names, lines if whole else [*lines[:half], ["..."] * len(names), *lines[half:]]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value).replace("\n", "\\n")
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."
