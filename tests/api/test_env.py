"""`whet.train(env=...)`: a class of a notebook, and what cannot be an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet


def test_a_class_that_no_file_defines_plays_the_episodes(tmp_path: Path, quickstart: Path) -> None:
    bonus = 0.25

    class Twice:
        def __init__(self) -> None:
            self.turn = 0

        def reset(self, prompt: Any) -> None:
            assert prompt.extra["note"] == "kept"

        def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
            self.turn += 1
            return "again", bonus, self.turn == 2, {}

    rows = [{"prompt": f"Sort these digits: {i} 4 1", "note": "kept"} for i in range(4)]
    run = whet.train(
        str(quickstart / "model"),
        rows,
        env=Twice,
        output=tmp_path / "run",
        steps=1,
        n=2,
        batch_size=4,
        max_prompt_length=64,
        max_response_length=32,
        quiet=True,
        val_freq=-1,
        **{"worker.rollout.max_turn_tokens": 8, "trainer.val_before_train": False},
    )
    assert run.metrics["reward/overall"] == [2 * bonus]
    assert run.config.worker.rollout.env.endswith(".pickle:Twice")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (3, "env: expected a class with reset and step, or its name, got int"),
        (" ", "env is empty"),
        ("nowhere.py:Maze", "there is no such file"),
        (dict, "dict has no method reset nor step"),
    ],
)
def test_what_is_no_environment(tmp_path: Path, quickstart: Path, env: Any, said: str) -> None:
    rows = [{"prompt": "Sort: 2 1"}] * 2
    with pytest.raises(whet.UserError) as error:
        whet.train(
            str(quickstart / "model"),
            rows,
            env=env,
            output=tmp_path / "run",
            n=2,
            batch_size=2,
            max_response_length=64,
            max_prompt_length=64,
            steps=1,
        )
    assert said in str(error.value)
