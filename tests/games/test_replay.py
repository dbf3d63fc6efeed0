"""Replays of a run's episodes, played again from what the run has recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from environments import NumberGame
from games.rows import row
from PIL import Image
from replay import main, turns_of

OPTIONS = {"size": [84, 84], "columns": 2, "rows": 2, "count": 3, "highest": 3, "turns": 4, "trouble": {"drop": 0.3}}


def recorded(seed: int) -> dict[str, object]:
    """Play a game whose first turn is no action; return it as the samples of a run have it."""
    env = NumberGame(**OPTIONS)
    env.reset(row(seed))
    response, rewards, said = "", [], "I look."
    while True:
        seen, reward, done, info = env.step(said)
        response, rewards = response + said, [*rewards, reward]
        if done:
            break
        response += f"\nuser\n{seen['text'] if isinstance(seen, dict) else ''}\nassistant\n"
        x, y = env.places()[0]
        said = f"tap({int(x * 84)}, {int(y * 84)})"
    end = info["end"]
    return {"uid": f"rows.jsonl:{seed + 1}", "index": 0, "response": response, "turn_rewards": rewards, "end": end}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": "Play.", "seed": i}) + "\n" for i in range(9)))
    config = {
        "data": {"train_files": str(tmp_path / "rows.jsonl")},
        "worker": {"rollout": {"env": "environments.py:NumberGame", "env_args": OPTIONS}},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    (tmp_path / "samples").mkdir()
    samples = [recorded(seed) for seed in (3, 5)]
    pq.write_table(pa.Table.from_pylist(samples), tmp_path / "samples" / "train_000002.parquet")
    return tmp_path


def test_episodes_are_played_again_to_the_same_rewards(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--folder", str(run / "pictures")]) == 0
    said = capsys.readouterr().out
    assert "seed 3: " in said
    assert "seed 5: " in said
    assert "something else" not in said
    assert len(list((run / "pictures").iterdir())) == 2
    for file in (run / "pictures").iterdir():
        with Image.open(file) as picture:
            assert picture.n_frames >= 3  # type: ignore[attr-defined]


def test_what_cannot_be_replayed_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--step", "7"]) == 2
    assert "has no train_000007.parquet" in capsys.readouterr().err
    (run / "config.yaml").write_text('{"worker": {"rollout": {"env": "other.py:Chess"}}}')
    assert main([str(run)]) == 2
    assert "other.py:Chess is no simulated game" in capsys.readouterr().err


def test_turns_are_cut_where_the_user_speaks() -> None:
    assert turns_of("tap(1, 2)\nuser\n\nassistant\nhm\nuser\nWrite done().\nassistant\ndone()") == [
        "tap(1, 2)",
        "hm",
        "done()",
    ]
