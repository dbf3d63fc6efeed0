"""`write_project`: files that are whole and belong together. tests/journeys runs them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from PIL import Image

from whet.assets.project import KINDS, as_notebook, write_project
from whet.config import check_config, check_files, load_config
from whet.errors import UserError


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_is_whole(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    files = {path.name for path in write_project(folder, kind)}
    assert {"README.md", "config.yaml", "train.py", "train.jsonl", "test.jsonl"} <= files
    rows = {name: [json.loads(line) for line in (folder / name).read_text().splitlines()] for name in _FILES}
    assert [len(rows[name]) for name in _FILES] == ([15, 15] if kind == "agent" else [400, 100])
    if kind == "agent":  # what is to be guessed is not in the prompt
        assert rows["train.jsonl"] == rows["test.jsonl"]
    elif kind == "vision":
        for row in rows["train.jsonl"][:3]:
            assert Image.open(folder / row["images"][0]).size == (84, 84)
    else:
        prompts = [{row["prompt"] for row in rows[name]} for name in _FILES]
        assert not prompts[0] & prompts[1]
    monkeypatch.chdir(tmp_path)  # a config is read from any folder
    if kind != "sft":
        config = load_config([f"config={folder / 'config.yaml'}"])
        check_config(config)
        check_files(config)
    text = (folder / "README.md").read_text()
    for name in files - {"README.md", "images", "run"}:
        assert f"`{name}`" in text, f"{name} is not in README.md"


_FILES = ("train.jsonl", "test.jsonl")


def test_the_same_rows_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_project(tmp_path / name, "rl")
    assert (tmp_path / "a" / "train.jsonl").read_bytes() == (tmp_path / "b" / "train.jsonl").read_bytes()


def test_a_script_becomes_a_notebook() -> None:
    notebook = as_notebook("# %% [markdown]\n# # Title\n# text\n\n# %%\nx = 1\n\n\n# %%\nx\n")
    assert [cell["cell_type"] for cell in notebook["cells"]] == ["markdown", "code", "code"]
    assert "".join(notebook["cells"][0]["source"]) == "# Title\ntext"
    assert "".join(notebook["cells"][1]["source"]) == "x = 1"
    for cell in notebook["cells"][1:]:
        ast.parse("".join(cell["source"]))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="not an empty folder"):
        write_project(tmp_path / "mine", "rl")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not an empty folder"):
        write_project(tmp_path / "file", "rl")
    with pytest.raises(UserError, match="choose from agent, rl, sft, vision"):
        write_project(tmp_path / "new", "rlx")
    with pytest.raises(UserError, match="cannot be written"):
        write_project(tmp_path / "file" / "below", "rl")
