"""The folder of examples that comes with whet: configs, reward functions, prompt templates, recipes."""

from __future__ import annotations

from pathlib import Path

PREFIX = "whet/"  # of a file among the examples, as configs name what they extend


def examples_folder() -> Path:
    """Return the examples inside the installed package, or those beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent / "examples"


def beside_or_shipped(name: str, folder: Path) -> Path:
    """Return the file that a config in `folder` names: `whet/NAME` is one of the examples, unless it exists there."""
    beside = folder / Path(name).expanduser()
    if name.startswith(PREFIX) and not beside.exists():
        return examples_folder() / name.removeprefix(PREFIX)
    return beside
