"""The card of prepared data: a README.md beside the files that says where rows came from and what was done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whet import __version__
from whet.errors import UserError


@dataclass
class Part:
    """One file of prepared rows, and what became of the rows that it was made from."""

    name: str  # of the split
    file: str
    sources: Sequence[str]  # files or hub data sets, with checksums of files
    read: int
    kept: int
    sha256: str
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason → rows


def card(title: str, facts: Mapping[str, str], parts: Sequence[Part], notes: Sequence[str], use: str) -> str:
    """Return the card's text. `use` is a piece of YAML by which the files are read."""
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in facts.items() if value), ""]
    lines += ["| split | file | rows read | rows dropped | rows written | SHA-256 |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {part.name} | `{part.file}` | {part.read} | {part.read - part.kept} | {part.kept} | `{part.sha256}` |"
        for part in parts
    ]
    lines += ["", "## Sources", ""]
    lines += [f"- {part.name}: {source}" for part in parts for source in part.sources]
    lines += ["", "## Dropped rows", ""]
    reasons = [f"- {part.name}: {count} × {reason}" for part in parts for reason, count in sorted(part.dropped.items())]
    lines += reasons or ["None."]
    if notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    lines += ["", "## Use", "", "```yaml", use.rstrip("\n"), "```", "", f"Made by whet {__version__}.", ""]
    return "\n".join(lines)


def has_lines(readme: Path, marks: Sequence[str]) -> bool:
    """Return True if a card exists and has, for each of the marks, a line that begins with it."""
    lines = readme.read_text(encoding="utf-8", errors="replace").splitlines() if readme.is_file() else []
    return all(any(line.startswith(mark) for line in lines) for mark in marks)


def refuse_others(command: str, readme: Path, marks: Sequence[str], files: Sequence[Path]) -> None:
    """Raise UserError if a file exists and the card beside it is not one that this command would write again."""
    there = next((path for path in (readme, *files) if path.exists()), None)
    if there is not None and not has_lines(readme, marks):
        raise UserError(
            f"{command}: {there} exists and is not of these data; it is not overwritten. Move it, or write elsewhere"
        )
