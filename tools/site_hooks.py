"""MkDocs hooks: README.md as the first page, and a page for each file of the repository that a guide links to.

Guides link to `../whet/...` and `../examples/...`, which are not part of the site. Every such file becomes a page with
its text under `source/`, every folder a page with the list of its files, so that links also work without a network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads this file alone
from site_lists import rewritten

ROOT = Path(__file__).resolve().parents[1]
HOME = "index.md"
SOURCE = "source"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "bash", ".sbatch": "bash", ".jinja": "jinja", ".json": "json"}
_PICTURES = (".png", ".svg", ".jpg")


def on_files(files: Files, config: Any) -> Files:
    """Add the first page and the pages of linked files, and those that these link to."""
    files.append(File.generated(config, HOME, content=(ROOT / "README.md").read_text(encoding="utf-8")))
    waiting = [(_path(file), file.content_string) for file in files if file.is_documentation_page()]
    while waiting:
        page, text = waiting.pop()
        for name, _ in _LINK.findall(text):
            target = _target(page, name)
            if target is None or (uri := _uri(target)) in files.src_uris:
                continue
            if target.suffix in _PICTURES:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
            else:
                content = _content(target)
                files.append(File.generated(config, uri, content=content))
                waiting.append((target, content if target.suffix == ".md" else ""))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site, and lists look as they do elsewhere."""
    here = _path(page.file)

    def replaced(match: re.Match[str]) -> str:
        target = _target(here, match[1])
        if target is None:
            return match[0]
        return _relative(_uri(target), page.file.src_uri) + (match[2] or "")

    return rewritten(_LINK.sub(replaced, markdown))


def _path(file: File) -> PurePosixPath:
    """Return the path in the repository of the text that a page shows."""
    uri = PurePosixPath(file.src_uri)
    if file.src_uri == HOME:
        return PurePosixPath("README.md")
    if uri.parts[0] == SOURCE:
        return PurePosixPath(*uri.parts[1:])
    return PurePosixPath("docs") / uri


def _target(page: PurePosixPath, name: str) -> PurePosixPath | None:
    """Return the path in the repository that a link of a page leads to; None if there is no such file."""
    found = (ROOT / page.parent / name).resolve()
    return PurePosixPath(found.relative_to(ROOT).as_posix()) if found.exists() and ROOT in found.parents else None


def _uri(target: PurePosixPath) -> str:
    """Return where the site has a path of the repository."""
    if target.parts[0] == "docs":
        return str(target.relative_to("docs"))
    if str(target) == "README.md":
        return HOME
    is_page = target.suffix == ".md" or target.suffix in _PICTURES
    return f"{SOURCE}/{target}" + ("" if is_page else ".md")


def _content(target: PurePosixPath) -> str:
    """Return the Markdown of a file or a folder."""
    path = ROOT / target
    if target.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.is_dir():
        return f"# {target}/\n\n" + "".join(f"- `{name}`\n" for name in _tracked(target))
    text = path.read_text(encoding="utf-8").rstrip("\n")
    return f"# {target}\n\n````{_LANGUAGES.get(target.suffix, 'text')}\n{text}\n````\n"


def _tracked(folder: PurePosixPath) -> list[str]:
    """List what is in a folder of the repository, without caches."""
    listed = subprocess.run(
        ["git", "ls-files", "--", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.splitlines() if listed.returncode == 0 and listed.stdout else _found(ROOT / folder)
    return sorted(str(PurePosixPath(name).relative_to(folder)) for name in names)


def _found(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [path.relative_to(ROOT).as_posix() for path in files]


def _relative(target: str, page: str) -> str:
    """Return a URI relative to a page's."""
    up = len(PurePosixPath(page).parts) - 1
    return "../" * up + target
