"""The commands of examples/games/README.md: demonstrations, warm starts, and runs that learn the games."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.config import load_config
from whet.tracking import read_metrics

GAMES = Path(__file__).parents[2] / "examples" / "games"
CONFIGS = sorted(GAMES.rglob("*.yaml"))
# By a player who touches any of three tiles, then any of two, then the last; any of three buttons, then of three again.
CHANCE = {"number_game": 1 / 6, "tree_game": 1 / 9}
MINUTES = 15
FAULTS = {
    None: "",
    "disconnect": "the device is not there any more",
    "black": "the picture is black",
    "hang": "no answer",
}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.relative_to(GAMES).as_posix())
def test_configs_are_understood(config: Path) -> None:
    assert load_config([f"config={config}"]).worker.actor.model.model_path


def test_a_device_that_fails_costs_its_episode_and_is_named(
    whet_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "Play.", "seed": seed, "trouble": {"fault": fault}} for seed, fault in enumerate(FAULTS)
    ]
    played = whet.generate("whet/vision", rows, config=str(GAMES / "number_game" / "config.yaml"), n=1)
    said = "".join(capfd.readouterr())
    assert [bool(row["failure"]) for row in played] == [False, True, True, True]
    for seed, reason in list(enumerate(FAULTS.values()))[1:]:
        assert f"simulated number_game, seed {seed}: screenshot: {reason}" in said


@pytest.mark.slow
@pytest.mark.parametrize("game", CHANCE)
def test_a_game_is_learned(game: str, whet_home: Path, tmp_path: Path) -> None:
    # Plain child processes, whose CPU time is counted as this one's children's.
    before = os.times()
    for command in (
        [str(GAMES / "demonstrate.py"), "demonstrations"],
        ["-m", "whet", "sft", f"config={GAMES / game / 'warm_start.yaml'}", "trainer.device=cpu"],
        ["-m", "whet", "train", f"config={GAMES / game / 'config.yaml'}", "trainer.device=cpu"],
    ):
        ended = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    lines = read_metrics(tmp_path / "checkpoints" / "whet" / game / "metrics.jsonl")
    accuracy = [line["val/accuracy"] for line in lines if "val/accuracy" in line]
    assert accuracy[0] < 2 * CHANCE[game], json.dumps(accuracy)
    assert accuracy[-1] >= 2 * max(CHANCE[game], accuracy[0]), json.dumps(accuracy)
    assert spent < MINUTES * 60
