"""Draws that a run is asked for: wrong ones are answered with a reason, and never cost it anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.config import Config
from whet.tracking.requests import FOLDER, ask_draw, take_draws
from whet.training.live_draws import answer_draws
from whet.types import Sample

PARAMS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "max_tokens": 4, "seed": 0, "ignore_eos": False}
GOOD = {"starts": [{"prompt_ids": [1, 2], "segments": []}], "sample_ids": [7], "params": PARAMS}


class Engine:
    """Writes the id of each sample."""

    version = 5

    def generate(self, prompts: Any, params: Any, sample_ids: list[int]) -> list[Sample]:
        if sample_ids[0] == 13:
            raise RuntimeError("out of memory")
        return [Sample.written(each, [i], [-0.5], "stop", version=5) for each, i in zip(prompts, sample_ids)]


def drawn(folder: Path, content: Any) -> dict[str, Any]:
    file = ask_draw(folder, "0123456789abcdef", content)
    engine: Any = Engine()
    assert answer_draws(folder, engine, Config(), 100, 3) == 1
    assert [each.name for each in (folder / FOLDER).iterdir()] == [file.name]
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_draw_is_answered_with_its_tokens(tmp_path: Path) -> None:
    sample = {"ids": [7], "log_probs": [-0.5], "finish": "stop", "version": 5}
    assert drawn(tmp_path, GOOD) == {"step": 3, "version": 5, "samples": [sample]}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "NoneType"),
        ([], "list indices"),
        ({}, "starts"),
        ({**GOOD, "sample_ids": [1, 2]}, "each with a sample id"),
        ({**GOOD, "sample_ids": [-1]}, "-1 is no whole number"),
        ({**GOOD, "sample_ids": [13]}, "out of memory"),
        ({**GOOD, "starts": [{"prompt_ids": [100], "segments": []}]}, "from 0 to 99"),
        ({**GOOD, "starts": [{"prompt_ids": [], "segments": []}]}, "a prompt of 1 to"),
        ({**GOOD, "starts": [{"prompt_ids": [1], "segments": [{"ids": [1] * 9999, "by_model": True}]}]}, "fewer than"),
        ({**GOOD, "params": {**PARAMS, "max_tokens": 10**9}}, "1000000000 is no whole number"),
        ({**GOOD, "params": {**PARAMS, "temperature": -1}}, "temperature=-1 must be 0 or more"),
        ({**GOOD, "params": {**PARAMS, "top_p": "all"}}, "refused the draw"),
    ],
)
def test_a_draw_that_is_wrong_is_refused(tmp_path: Path, content: Any, part: str) -> None:
    error = drawn(tmp_path, content)["error"]
    assert error.startswith("the run refused the draw: ")
    assert part in error


def test_files_that_are_no_requests_are_left_alone(tmp_path: Path) -> None:
    assert take_draws(tmp_path) == []
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "draw-..json").write_text("{}")
    (tmp_path / FOLDER / "draw-0123456789abcdef.json").write_text("{torn")
    (draw,) = take_draws(tmp_path)
    assert draw.content is None
    assert [each.name for each in (tmp_path / FOLDER).iterdir()] == ["draw-..json"]
