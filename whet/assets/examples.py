"""The folder of examples that comes with whet: configs, reward functions, prompt templates."""

from __future__ import annotations

from pathlib import Path


def examples_folder() -> Path:
    """Return the examples inside the installed package, or those beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent / "examples"
