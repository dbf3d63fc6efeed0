"""Parameters of a request, read strictly: a wrong one is a sentence that names it."""

from __future__ import annotations

import math

from starlette.datastructures import QueryParams

from whet.board.filters import MOST_ROWS, ORDERS, Filters, Page
from whet.board.sample_files import SPLITS
from whet.errors import UserError

_LARGEST = 2**53
_LONGEST = 2000


def whole(query: QueryParams, name: str) -> int | None:
    """Return a number that is 0 or more; None where it is not given."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > _LARGEST:
        raise UserError(f"{name} must be a whole number of 0 or more")
    return int(text)


def needed(query: QueryParams, name: str) -> int:
    """Return a number that must be given."""
    value = whole(query, name)
    if value is None:
        raise UserError(f"{name} must be given")
    return value


def number(query: QueryParams, name: str) -> float | None:
    """Return a finite number; None where it is not given."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{name} must be a number")
    return value


def split(query: QueryParams) -> str:
    """Return the split, train where none is given."""
    name = query.get("split", "train")
    if name not in SPLITS:
        raise UserError(f"split must be {' or '.join(SPLITS)}")
    return name


def filters(query: QueryParams) -> Filters:
    """Return the conditions on samples."""
    for name in ("text", "uid"):
        if len(query.get(name, "")) > _LONGEST:
            raise UserError(f"{name} is longer than {_LONGEST} characters")
    return Filters(
        step=whole(query, "step"),
        uid=query.get("uid") or None,
        text=query.get("text") or None,
        min_reward=number(query, "min_reward"),
        max_reward=number(query, "max_reward"),
        min_length=whole(query, "min_length"),
        max_length=whole(query, "max_length"),
        version=whole(query, "version"),
    )


def page(query: QueryParams, limit: int = 20) -> Page:
    """Return order and place of a page; `-reward` is from high to low."""
    order = query.get("order", "") or "step"
    name = order.removeprefix("-")
    if name not in ORDERS:
        raise UserError(f"order must be one of {', '.join(ORDERS)}, with - before it for the reverse")
    asked = whole(query, "limit")
    return Page(name, order.startswith("-"), whole(query, "offset") or 0, max(1, min(asked or limit, MOST_ROWS)))
