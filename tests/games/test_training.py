"""The commands of examples/games/README.md: demonstrations, warm start, and a run that learns the number game."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from whet_process import run_folder, start

import whet
from whet.config import load_config
from whet.tracking import read_metrics

GAMES = Path(__file__).parents[2] / "examples" / "games"
CONFIGS = sorted(GAMES.rglob("*.yaml"))
CHANCE = 1 / 6  # a player who touches any of three tiles, then any of two, then the last
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
def test_the_number_game_is_learned(whet_home: Path, tmp_path: Path) -> None:
    before = os.times()
    subprocess.run([sys.executable, str(GAMES / "demonstrate.py"), "demonstrations"], cwd=tmp_path, check=True)
    for command in (("sft", "warm_start.yaml"), ("train", "number_game/config.yaml")):
        process = start(tmp_path, command[0], f"config={GAMES / command[1]}", "trainer.device=cpu")
        assert process.wait(3600) == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, "number_game") / "metrics.jsonl")
    accuracy = [line["val/accuracy"] for line in lines if "val/accuracy" in line]
    assert accuracy[0] < 2 * CHANCE, json.dumps(accuracy)
    assert accuracy[-1] >= 2 * max(CHANCE, accuracy[0]), json.dumps(accuracy)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < MINUTES * 60
