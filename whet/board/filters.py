"""Filters, order and page of a query for samples."""

from __future__ import annotations

from dataclasses import dataclass

ORDERS = ("step", "reward", "length", "advantage")
MOST_ROWS = 100
# Columns of a row in a list, besides scores; token columns are read for one sample at a time.
LISTED = (
    "step",
    "uid",
    "index",
    "group",
    "prompt",
    "response",
    "answer",
    "finish",
    "length",
    "turns",
    "version",
    "reward",
    "failure",
    "dropped",
    "advantage",
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all hold for a sample; None is no condition. `text` is looked for in any case of its letters."""

    step: int | None = None
    uid: str | None = None
    text: str | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    version: int | None = None  # of the policy that wrote it


@dataclass(frozen=True, slots=True)
class Page:
    """Rows `offset` to `offset + limit` in an order; samples without a value come last, ties by step and row."""

    order: str = "step"
    descending: bool = False
    offset: int = 0
    limit: int = 20
