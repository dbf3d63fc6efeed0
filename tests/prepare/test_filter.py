"""`whet data filter`: a band of difficulty, estimated by a model or read from a column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from whet_process import write_rows

from whet.cli import examples_folder
from whet.data.files import read_rows

CONFIG = f"config={examples_folder() / 'quickstart.yaml'}"
Run = Callable[..., str]


@pytest.fixture
def rows(here: Path) -> list[dict[str, object]]:
    found = [
        {"prompt": str(n), "answer": "1", "extra_info": {"model_difficulty": {"Q-1.5B": n}}, "date": f"2024-{n:02}-01"}
        for n in range(1, 13)
    ]
    write_rows(here / "in.jsonl", found)
    return found


def test_by_a_column(whet: Run, refused: Run, rows: list[dict[str, object]]) -> None:
    by = "extra_info.model_difficulty.Q-1.5B"
    whet("data", "filter", "in.jsonl", "out.pkl", "--by", by, "--keep", "2..4")
    assert read_rows("out.pkl") == rows[1:4]
    whet("data", "filter", "in.jsonl", "out.parquet", "--by", "date", "--keep", "2024-08-01..2024-10-15")
    assert [row["prompt"] for row in read_rows("out.parquet")] == ["8", "9", "10"]
    whet("data", "filter", "in.jsonl", "out.jsonl", "--keep=11..", f"--by={by}")
    assert read_rows("out.jsonl") == rows[10:]
    card = Path("out.jsonl.README.md").read_text()
    assert "10 × below 11" in card
    assert "| rows | `out.jsonl` | 12 | 10 | 2 |" in card
    whet("data", "filter", "in.jsonl", "out.jsonl", "--keep=10..", f"--by={by}")  # another band of the same rows
    write_rows(Path("other.jsonl"), rows[:3])
    for source, output in (("other.jsonl", "out.jsonl"), ("in.jsonl", "other.jsonl")):
        said = refused("data", "filter", source, output, "--by", "date", "--keep", "2024-01-01..")
        assert f"{output}{'.README.md' * (output == 'out.jsonl')} exists and is not of these data" in said
    assert len(read_rows("out.jsonl")) == len(read_rows("other.jsonl")) == 3


def test_by_a_model_and_once_more(whet: Run, refused: Run, quickstart: Path, here: Path) -> None:
    given = read_rows(str(quickstart / "test.jsonl"))[:30]
    write_rows(here / "in.jsonl", given)
    command = ("data", "filter", "in.jsonl", "out.jsonl", "--n", "4", CONFIG, "trainer.device=cpu")
    whet(*command)
    kept = read_rows("out.jsonl")
    assert 0 < len(kept) < 30
    assert {row["pass_rate"] for row in kept} <= {0.25, 0.5, 0.75}
    journal = Path("out.jsonl.samples/val/answers.jsonl")
    answers = journal.read_text().splitlines()
    assert len(answers) == 31
    # A killed estimate goes on: of the journal only the first ten answers are left.
    journal.write_text("\n".join(answers[:11]) + "\n" + answers[11][:20])
    Path("out.jsonl").unlink()
    assert "10 of 30 are answered already" in whet(*command)
    assert read_rows("out.jsonl") == kept
    # Another band asks nobody, and every row of it has the rate that it had.
    out = whet(*command, "--keep", "0..0.5", "--column", "solved")
    assert "model:" not in out
    wider = {row["problem"]: row["solved"] for row in read_rows("out.jsonl")}
    assert all(wider[row["problem"]] == row["pass_rate"] for row in kept if row["pass_rate"] <= 0.5)
    assert set(wider.values()) <= {0.0, 0.25, 0.5}
    samples = [json.loads(line) for line in journal.read_text().splitlines()][1:]
    assert len(samples) == 30
    assert "none of 30 rows" in refused(*command, "--keep", "0.9..0.95")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "takes two files"),
        (("in.jsonl", "out.txt"), "must end in one of"),
        (("in.jsonl", "in.jsonl"), "is the input"),
        (("in.jsonl", "out.jsonl", "--n", "0"), "--n 0"),
        (("in.jsonl", "out.jsonl", "--n", "x"), "--n"),
        (("in.jsonl", "out.jsonl", "--keep", "0.5"), "ends of a band"),
        (("in.jsonl", "out.jsonl", "--keep", "1..15"), "no fraction"),
        (("in.jsonl", "out.jsonl", "--keep", "0.9..0.1"), "nothing lies between"),
        (("in.jsonl", "out.jsonl", "--by", "date"), "--keep 1..15"),
        (("in.jsonl", "out.jsonl", "--by", "dat", "--keep", "1..2"), "in.jsonl:1 has no such column"),
        (("in.jsonl", "out.jsonl", "--by", "extra_info", "--keep", "1..2"), "no number or text"),
        (("in.jsonl", "out.jsonl", "--by", "date", "--keep", "1..2", "worker.rollout.n=4"), "has no effect"),
        (("none.jsonl", "out.jsonl", "--by", "date", "--keep", "1..2"), "there is no file"),
    ],
)
def test_mistakes_are_sentences(
    refused: Run, rows: list[dict[str, object]], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused("data", "filter", *arguments)
