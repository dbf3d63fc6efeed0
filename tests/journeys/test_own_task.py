"""A new user's own task by README.md alone: `whet new`, rows of theirs, README's reward in their file, `whet train`.

The model comes with the package and sorts digits upwards, downwards or not at all, whatever it is asked. The user wants
digits repeated as they are.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
from journeys.walk import block, curve, drawn_curves, type_in

ROWS = {"train.jsonl": 300, "test.jsonl": 60}


def own_rows(seed: int, count: int) -> list[dict[str, str]]:
    rng = Random(seed)
    rows = []
    for _ in range(count):
        digits = " ".join(rng.sample("0123456789", rng.randint(3, 6)))
        rows.append({"question": f"Repeat these digits: {digits}", "truth": f"Answer: {digits}"})
    return rows


@pytest.fixture
def project(quickstart: Path, tmp_path: Path) -> Path:
    """What `whet new` writes, with the user's rows, reward and names of columns."""
    said = type_in(tmp_path, "new", "my_project").out
    folder = tmp_path / "my_project"
    assert "next: cd my_project && whet train" in said
    for seed, (name, count) in enumerate(ROWS.items()):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in own_rows(seed, count)))
    (folder / "reward.py").write_text(block("python", "def compute_score"))
    config = (folder / "config.yaml").read_text()
    for key, column in (("prompt_key", "question"), ("answer_key", "truth")):
        config, changed = re.subn(rf"{key}: \w+", f"{key}: {column}", config)
        assert changed == 1
    (folder / "config.yaml").write_text(config)
    return folder


def learns(project: Path, *arguments: str) -> list[float]:
    """Train, plot and ask; return the accuracies of the validations."""
    commands = block("sh", "whet new my_project")
    assert "whet train config.yaml" in commands
    printed = type_in(project, "train", "config.yaml", *arguments).out
    assert "warning" not in printed
    assert type_in(project, "plot", "run").out.startswith("run/curves.svg: ")
    values = curve(project / "run", "val/accuracy")
    assert drawn_curves((project / "run" / "curves.svg").read_text())
    return values


def test_the_first_steps_of_it_already_help(project: Path) -> None:
    values = learns(project, "trainer.max_steps=12", "trainer.val_freq=12", "trainer.save_freq=12")
    assert values[0] < 0.6
    assert values[-1] > values[0] + 0.15


@pytest.mark.slow
def test_all_of_it(project: Path) -> None:
    values = learns(project)
    assert values[0] < 0.6
    assert values[-1] > 0.75
    assert "Answer:" in type_in(project, "chat", "run", typed="Repeat these digits: 5 2 9\n").out
