"""Resolve the model name given to the server to a folder and to the name for clients. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path


def model_folder(path: Path) -> Path | None:
    """The Hugging Face folder that a path is, or that a checkpoint (global_step_N) holds."""
    for folder in (path, path / "actor" / "huggingface"):
        if (folder / "config.json").is_file():
            return folder
    return None


def served_name(given: str) -> str:
    """The last part of a path that says something: a checkpoint's is global_step_N."""
    path = Path(given)
    return path.parents[1].name if path.parts[-2:] == ("actor", "huggingface") and len(path.parts) > 2 else path.name
