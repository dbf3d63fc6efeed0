"""`make docs`: the site builds without a warning, has every page, and fetches nothing from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = ["Start", "Do", "Reference", "Why", "Studies"]

pytestmark = pytest.mark.skipif(
    find_spec("material") is None, reason="mkdocs-material is not installed: pip install -e '.[docs]'"
)


def build(repository: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=300, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "form": "action"}


class Loaded(HTMLParser):
    """Collect the addresses that a browser fetches to show a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.styles = re.findall(
            r"url\(([^)]*)\)|@import\s+([^;]*)", "".join(re.findall(r"<style.*?</style>", text, re.S))
        )
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") == "canonical":
            return
        if tag in FETCHED and (address := values.get(FETCHED[tag])):
            self.fetched.append(address)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Loaded]:
    """What a browser fetches for each page."""
    return {page: Loaded(page.read_text()) for page in site.rglob("*.html")}


def elsewhere(address: str) -> bool:
    return re.match(r"['\"]?([a-z]+:)?//", address) is not None


def test_every_page_of_the_documentation_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page
    assert "whet sharpens language models" in (site / "index.html").read_text()


def test_the_order_of_the_sections(site: Path) -> None:
    import yaml

    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    assert [name for section in yaml.safe_load(text)["nav"] for name in section] == SECTIONS
    navigation = (site / "index.html").read_text().partition('aria-label="Navigation"')[2]
    places = [re.search(rf">\s*{name}\s*<", navigation) for name in SECTIONS]
    starts = [place.start() for place in places if place is not None]
    assert len(starts) == len(SECTIONS)
    assert starts == sorted(starts)


def test_nothing_is_fetched_from_another_host(site: Path, pages: dict[Path, Loaded]) -> None:
    assert len(pages) > 40
    for page, loaded in pages.items():
        assert loaded.fetched, page
        assert not [address for address in loaded.fetched if elsewhere(address)], page
        assert not [address for pair in loaded.styles for address in pair if elsewhere(address)], page
    for style in site.rglob("*.css"):
        addresses = re.findall(r"url\(([^)]*)\)|@import\s+([^;]*)", style.read_text())
        assert not [address for pair in addresses for address in pair if elsewhere(address)], style


def test_what_pages_fetch_is_there(pages: dict[Path, Loaded]) -> None:
    for page, loaded in pages.items():
        for address in loaded.fetched:
            file = address.partition("?")[0].partition("#")[0]
            if file and page.name != "404.html" and not file.startswith("data:"):
                assert (page.parent / file).exists(), f"{page}: {address}"


def test_broken_links_are_errors(tmp_path: Path) -> None:
    links = {"page": "nowhere.md", "heading": "page.md#no-such-heading", "file": "../whet/gone.py"}
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(ROOT / "tools", copy / "tools")
    (copy / "docs").mkdir()
    for name, link in links.items():
        (copy / "docs" / f"{name}.md").write_text(f"# Data\n\n[gone]({link})\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (copy / "mkdocs.yml").write_text(settings)
    (copy / "README.md").write_text("# Home\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("WARNING")]
    for name, link in links.items():
        assert [line for line in warnings if f"{name}.md" in line and link.rpartition("#")[2] in line], warnings


def counts(html: str) -> dict[str, int]:
    return {
        tag: len(re.findall(rf"<{tag}[ >]", html)) for tag in ("li", "ol", "ul", "pre", "table", "h2", "blockquote")
    }


def test_pages_have_the_lists_and_blocks_that_commonmark_has(site: Path) -> None:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark").enable("table")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for page in pages:
        name = "index.html" if page.name == "README.md" else page.relative_to(ROOT / "docs").with_suffix(".html")
        text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
        article = (site / name).read_text().partition("<article")[2].partition("</article>")[0]
        article = re.sub(r'<nav class="md-code__nav">.*?</nav>', "", article, flags=re.DOTALL)
        assert counts(article) == counts(reader.render(text)), page
