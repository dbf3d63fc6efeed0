"""Rows of the android_gui example, as README.md says they are made: their answers, and what the scorer pays."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from android_gui.make_data import draw, row
from PIL import Image

from whet.config import load_config
from whet.rewards.registry import SCORERS

FOLDER = Path(__file__).parents[2] / "examples" / "games" / "android_gui"


@pytest.mark.parametrize(("light", "answer"), [("green", "1"), ("red", "2"), ("yellow", "0")])
def test_the_light_says_which_number_is_right(light: str, answer: str) -> None:
    made = row(light, (40, 71, 3), (196, 392))
    assert made["answer"] == answer
    assert str(made["problem"]).startswith("<image>")
    score = SCORERS.find(str(made["data_source"])).score
    assert score(f"<think>3 numbers</think>{answer}", answer)["overall"] == 1
    assert score(f"{(int(answer) + 1) % 3}", answer)["overall"] == 0


def test_one_light_is_on() -> None:
    pictures = {light: draw(light, (1, 2, 3), (196, 392)) for light in ("green", "red", "yellow")}
    assert len({picture.tobytes() for picture in pictures.values()}) == 3
    assert pictures["red"].getpixel((49, 78)) == (240, 30, 30)
    assert pictures["green"].getpixel((49, 78)) == (60, 58, 54)


def test_the_script_writes_rows_that_the_config_reads(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "make_data.py"), str(tmp_path), "--train", "6", "--test", "3"]
    subprocess.run([*command, "--size", "84", "168"], check=True)
    rows = [each for part in ("train", "test") for each in pq.read_table(tmp_path / f"{part}.parquet").to_pylist()]
    assert len({each["images"][0]["bytes"] for each in rows}) == len(rows) == 9
    with Image.open(io.BytesIO(rows[0]["images"][0]["bytes"])) as picture:
        assert picture.size == (84, 168)
    config = load_config([f"config={FOLDER / 'qwen2_5_vl.yaml'}"])
    assert {config.data.prompt_key, config.data.answer_key, config.data.image_key} < set(rows[0])
    assert config.worker.reward.reward_function == "android_gui"
