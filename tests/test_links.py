"""Links between the pages of the documentation lead somewhere, to the heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path for folder in ("", "docs", "docs/*", "examples/*") for path in ROOT.glob(f"{folder}/*.md".lstrip("/"))
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, heading = target.partition("#")
        if "://" in name:
            continue
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not heading or heading in _headings(file), target


def _headings(page: Path) -> set[str]:
    """The names under which GitHub links to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
