"""Every snippet of docs/python.md runs, in the order of the page, as in one notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from api.notebook import run_cell

import whet

GUIDE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_snippets_of_the_guide(
    cell: dict[str, Any],
    quickstart: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == 7
    assert snippets[0].count("steps=10") == 1
    variables: dict[str, Any] = {}
    for number, snippet in enumerate(snippets):
        variables |= run_cell(snippet.replace("steps=10", "steps=3"), 100 + number, variables)
    assert variables["run"].metrics["step"] == [0, 1, 2, 3]
    assert (tmp_path / "reward.svg").exists()
    assert variables["session"].step == 2
    promised = re.search(r"print\(error\)  # (.*)", text)
    assert promised is not None
    assert promised[1] in capsys.readouterr().out


def test_the_table_of_names_is_the_public_api() -> None:
    named = set(re.findall(r"`whet\.(\w+)", GUIDE.read_text().partition("## Train")[0]))
    assert named <= set(whet.__all__)
    assert named >= {"train", "sft", "generate", "evaluate", "load", "Session", "advantage", "policy_loss", "UserError"}
