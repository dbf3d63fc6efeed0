"""What docs/data.md shows works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from whet.config import load_config
from whet.config.schema.data import DataConfig
from whet.data.dataset import PromptDataset
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


def test_row_with_an_image(tmp_path, jsonl, seeing_tokenizer, processor_of):
    (text,) = blocks("json")
    (tmp_path / "figures").mkdir()
    Image.new("RGB", (56, 56)).save(tmp_path / "figures" / "17.png")
    config = DataConfig(image_dir=str(tmp_path))
    (prompt,) = PromptDataset(str(jsonl([json.loads(text)])), config, seeing_tokenizer, processor=processor_of())
    assert prompt.media.images[0].size == (504, 504)
