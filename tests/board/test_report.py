"""`whet report`: one file, everything in it, and text that stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from whet.cli import main
from whet.tracking.run_folder import append_metrics


class Elements(HTMLParser):
    """Names of all elements, and every address that one refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.names.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_report_of_a_hostile_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert "report.html" in capsys.readouterr().out
    text = (run / "report.html").read_text()
    page = Elements()
    page.feed(text)
    assert not page.addresses
    assert not page.names & {"script", "img", "i", "b", "link", "iframe"}
    assert {"svg", "table", "pre"} <= page.names
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
    assert "Best samples: step 3 (train)" in text
    assert "train.jsonl:39" in text
    assert "<strong>gradients</strong>, step 11–14" in text
    assert "train_000002.parquet is damaged" in text
    assert "data.max_response_length" in text
    assert "verysecret" not in text
    assert main(["report", str(run), "--lang", "zh", "--out", str(run / "zh.html")]) == 0
    chinese = (run / "zh.html").read_text()
    assert '<html lang="zh">' in chinese
    assert "<h2>发现</h2>" in chinese
    assert "最好的样本: 步 3 (训练)" in chinese


def test_a_run_without_samples_or_config_and_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_metrics(tmp_path / "metrics.jsonl", 1, {"some/metric": 1.0})
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    assert "The run kept none" in (tmp_path / "r.html").read_text()
    capsys.readouterr()
    for arguments, part in (
        ([], "takes one run folder"),
        ([str(tmp_path), "--out", "x.pdf"], "must end in .html"),
        ([str(tmp_path), "--out=no/x.html"], "there is no folder"),
        ([str(tmp_path / "gone")], "no such run folder"),
        ([str(tmp_path), "--dark"], "no option"),
        ([str(tmp_path), "--lang", "fr"], "--lang is en or zh"),
        ([str(tmp_path), "--lang"], "--lang needs a value"),
    ):
        assert main(["report", *arguments]) == 2
        assert part in capsys.readouterr().err
