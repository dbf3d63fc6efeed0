"""What a newcomer does: types a command of whet in a folder, and reads what it prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet_process import Ended, run_whet

from whet.tracking import read_metrics

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def type_in(folder: Path, *arguments: str, typed: str = "") -> Ended:
    """Run `whet arguments` in a process of its own, which must succeed."""
    done = run_whet(folder, *arguments, typed=typed, seconds=900)
    assert done.code == 0, done.out + done.err
    return done


def block(language: str, containing: str) -> str:
    """Return the code block of README.md that holds a text, without its indentation."""
    blocks = re.findall(rf"^( *)```{language}\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    (found,) = [(indent, text) for indent, text in blocks if containing in text]
    return re.sub(rf"^{found[0]}", "", found[1], flags=re.MULTILINE)


def curve(run: Path, metric: str) -> list[float]:
    """Return the values of a metric, in the order of steps."""
    records: Sequence[dict[str, Any]] = read_metrics(run / "metrics.jsonl")
    return [record[metric] for record in records if metric in record]


def drawn_curves(svg: str) -> list[list[float]]:
    """Return how high each thick line of a picture is at its points, in pixels above the lower edge."""
    height = float(re.search(r'height="(\d+)"', svg)[1])  # type: ignore[index]
    lines = re.findall(r'<polyline points="([^"]+)" fill="none" stroke="#\w+" stroke-width="1\.8"', svg)
    return [[height - float(point.partition(",")[2]) for point in line.split()] for line in lines]
