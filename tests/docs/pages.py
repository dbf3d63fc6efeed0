"""The commands on the pages of the documentation: what a reader would type, and where it stands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "whet/assets/projects/*/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
SHELLS = ("sh", "bash", "shell", "console", "text", "")
PROGRAMS = ("whet", "make", "python", "python3", "torchrun")
_FENCE = re.compile(r"^( *)(```+)([\w-]*)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^(?:\n|\A)((?:    [^\n]*\n)+)", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`((?:whet|make|python) [^`\n]+)`(?!`)")
_VARIABLE = re.compile(r"\w+=")


@dataclass(frozen=True)
class Written:
    """A command as a page shows it."""

    page: str  # relative to the repository
    text: str  # on one line, without comments and variables of the environment
    inline: bool = False  # in running text, where it may be an abbreviation

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def commands() -> list[Written]:
    """Return the commands of all pages, each once for a page."""
    found = [written for page in PAGES for written in on_page(page)]
    return list(dict.fromkeys(found))


def on_page(page: Path) -> Iterator[Written]:
    """Yield the commands of a page in their order: of its shell blocks, then of its text."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    blocks = [body for _, _, language, body in _FENCE.findall(text) if language in SHELLS]
    rest = _FENCE.sub("\n", text)
    for body in [*blocks, *_INDENTED.findall(rest)]:
        yield from (Written(name, command) for command in _commands(body))
    for command in _INLINE.findall(rest):
        yield Written(name, command, inline=True)


def _commands(body: str) -> Iterator[str]:
    """Yield the commands of a block that start a program of ours."""
    for line in re.sub(r"\\\n\s*", "", body).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a drawing, or what a program printed
            continue
        words = words[1:] if words[:1] == ["$"] else words
        while words and _VARIABLE.match(words[0]):
            del words[0]
        for part in _parts(words):
            program = part[0].rpartition("/")[2] if part else ""
            if program in PROGRAMS and len(part) > 1:
                yield shlex.join([program, *part[1:]])


def _parts(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of a line that `&&`, `;` or a pipe joins, and what a script of ours is asked to run."""
    part: list[str] = []
    for word in [*words, ";"]:
        if word in ("&&", ";", "|"):
            yield _inner(part)
            part = []
        else:
            part.append(word)


def _inner(part: list[str]) -> list[str]:
    """Return the command of ours that a launcher starts: `on_every_machine.sh ADDRESS 0 2 whet train ...`."""
    if part and part[0].endswith("on_every_machine.sh"):
        return part[4:]
    if part[:1] == ["torchrun"] and "whet" in part:
        return part[part.index("whet") :]
    return part
