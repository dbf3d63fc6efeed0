"""README.md: its map has every package, its list of guides every page in the order of the site."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_map_has_every_package() -> None:
    packages = [path.parent.name for path in (ROOT / "whet").glob("*/__init__.py")]
    table = README.partition("## The map")[2].partition("## Guides")[0]
    assert len(packages) > 15
    assert not [name for name in packages if f"](whet/{name}" not in table]


def test_the_guides_are_those_of_the_site_in_its_order() -> None:
    listed = re.findall(r"\]\(docs/([^)#]+\.md)\)", README.partition("## Guides")[2].partition("\n## ")[0])
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == written
    navigation = re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert listed == [page for page in navigation if page != "index.md"]
