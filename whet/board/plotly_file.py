"""plotly's JavaScript, as the installed package brings it."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from whet.errors import UserError


def check_libraries() -> None:
    """Raise a `UserError` unless what whet[board] brings is installed; DuckDB may be missing."""
    missing = [name for name in ("plotly", "pydantic", "starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(f"whet board needs {', '.join(missing)}: pip install 'whet[board]'")


def plotly_file() -> Path:
    """Return the path of plotly.min.js."""
    file = Path(str(files("plotly") / "package_data" / "plotly.min.js"))
    if not file.is_file():
        raise UserError(f"the installed plotly has no {file}; pip install --upgrade plotly")
    return file
