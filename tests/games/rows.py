"""Rows for environments that are played without a run."""

from __future__ import annotations

from whet.types import Prompt


def row(seed: int, text: str = "Play.") -> Prompt:
    """Return the prompt of a row with a seed."""
    return Prompt("rows:1", [], text, extra={"seed": seed}, messages=[{"role": "user", "content": text}])
