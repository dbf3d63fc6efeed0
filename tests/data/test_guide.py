"""What docs/data.md shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from whet.config import load_config
from whet.data.template import PromptTemplate

GUIDE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_configs_load(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    config = load_config([f"config={tmp_path / 'config.yaml'}"])
    assert config.data.train_files in text


def test_template_renders(tmp_path):
    (text,) = blocks("jinja")
    (tmp_path / "t.jinja").write_text(text)
    lines = PromptTemplate(tmp_path / "t.jinja").render("1 + 1 = ?", {"hint": "count"}, "train.jsonl:1").splitlines()
    assert lines == ["1 + 1 = ?", "Hint: count", 'Think step by step and end with "#### " and the number.']
