"""Every recipe's tiny run ends well, and shows what its README promises."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from whet.assets.recipes import Recipe, recipes
from whet.tracking import read_metrics

RECIPES = recipes()
# Least gain of a validation metric of the run checkpoints/whet/tiny, from its first to its last validation. Measured
# gains are at least twice as large; what is not here is checked for a run to its end.
GAINS: dict[str, tuple[str, float]] = {
    "collabllm": ("val/accuracy", 0.15),
    "dapo": ("val/accuracy", 0.35),
    "entropy": ("val/accuracy", 0.35),
    "flowrl": ("val/accuracy", 0.35),
    "gkd": ("val/accuracy", 0.4),
    "infigui_g1": ("val/accuracy", 0.2),
    "prime": ("val/accuracy", 0.3),
    "r1": ("val/accuracy", 0.08),
    "retool": ("val/accuracy", 0.3),
    "skywork_or1": ("val/accuracy", 0.35),
    "spin": ("val/accuracy", 0.3),
    "spo": ("val/accuracy", 0.35),
    "sppo": ("val/accuracy", 0.35),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_tiny_run(recipe: Recipe, tmp_path: Path) -> None:
    if missing := [package for package in recipe.needs if find_spec(package) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed")
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "whet", "recipe", recipe.name, str(tmp_path / "copy")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if recipe.name in GAINS:
        name, least = GAINS[recipe.name]
        values = [
            line[name] for line in read_metrics(tmp_path / "copy/checkpoints/whet/tiny/metrics.jsonl") if name in line
        ]
        assert values[-1] - values[0] > least, values
