"""`whet generate`: every row once, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from evals.conftest import read_lines
from whet_process import start, write_rows

from whet.cli import examples_folder, main

CONFIG = f"config={examples_folder() / 'quickstart.yaml'}"
SMALL = ("trainer.device=cpu", "worker.rollout.n=3", "worker.rollout.max_num_seqs=8")
Run = Callable[..., str]


@pytest.fixture
def rows(quickstart: Path, here: Path) -> list[dict[str, Any]]:
    """A few rows of the quickstart in `prompts.jsonl`, some columns of which only some rows have."""
    found = read_lines(quickstart / "test.jsonl")[:30]
    for number, row in enumerate(found):
        row |= {"level": number} if number % 2 else {"tags": ["a", "b"], "nested": {"x": None}}
    write_rows(here / "prompts.jsonl", found)
    return found


def generate(*arguments: str) -> tuple[str, ...]:
    return ("generate", CONFIG, *SMALL, "generate.files=prompts.jsonl", *arguments)


def test_every_row_n_times_in_order_with_its_columns(whet: Run, rows: list[dict[str, Any]]) -> None:
    whet(*generate("generate.output=out.jsonl"))
    found = read_lines("out.jsonl")
    assert [(each["uid"], each["index"]) for each in found] == [
        (f"prompts.jsonl:{row}", index) for row in range(1, 31) for index in range(3)
    ]
    for number, row in enumerate(rows):
        kept = {name: value for name, value in row.items() if value is not None}
        assert kept.items() <= found[3 * number].items()
    assert all(each["response"] and each["finish"] in ("stop", "length") for each in found)
    assert "token_ids" not in found[0]
    assert list(Path().glob("*.part")) == []


def test_parquet_has_the_same_rows(whet: Run, rows: list[dict[str, Any]]) -> None:
    whet(*generate("generate.output=out.jsonl"))
    whet(*generate("generate.output=out.parquet", "generate.token_ids=true"))
    plain = read_lines("out.jsonl")
    table = pq.read_table("out.parquet").to_pylist()
    assert [each["response"] for each in table] == [each["response"] for each in plain]
    assert all(len(each["token_ids"]) == len(each["token_log_probs"]) == each["response_length"] for each in table)
    assert table[3]["level"] == 1
    assert table[0]["level"] is None


def test_answers_are_not_needed(whet: Run, here: Path) -> None:
    write_rows(here / "prompts.jsonl", [{"problem": "Sort these digits: 3 1 2"}])
    whet(*generate("generate.output=out.jsonl"))
    assert [set(row) for row in read_lines("out.jsonl")] == [
        {"problem", "uid", "index", "prompt_text", "response", "finish", "response_length"}
    ] * 3


@pytest.mark.parametrize("engine", ["native", "hf"])
def test_the_engine_decides_how_not_what_is_written(whet: Run, here: Path, rows: list, engine: str) -> None:
    greedy = ("worker.rollout.n=1", "worker.rollout.temperature=0")
    whet(*generate("generate.output=out.jsonl", f"worker.rollout.name={engine}", *greedy))
    whet(*generate("generate.output=one.jsonl", "worker.rollout.max_num_seqs=1", *greedy))
    assert [row["response"] for row in read_lines("out.jsonl")] == [row["response"] for row in read_lines("one.jsonl")]


@pytest.mark.parametrize("moments", [(5,), pytest.param((0, 1, 12, 25), marks=pytest.mark.slow)])
def test_killed_it_loses_and_repeats_nothing(whet: Run, here: Path, rows: list, moments: tuple[int, ...]) -> None:
    whet(*generate("generate.output=whole.jsonl"))
    part = here / "out.jsonl.part"
    for done in moments:  # prompts that are finished when it is killed, or a few more
        process = start(here, *generate("generate.output=out.jsonl"))
        assert process.wait_for(lambda done=done: part.exists() and part.read_bytes().count(b"\n") > done)
        process.kill()
        assert not (here / "out.jsonl").exists()
    kept = part.read_bytes().count(b"\n") - 1
    out = whet(*generate("generate.output=out.jsonl"))
    assert f"{kept} of 30 prompts are done already" in out
    assert (here / "out.jsonl").read_bytes() == (here / "whole.jsonl").read_bytes()
    assert not part.exists()


def test_stopped_between_the_output_and_the_end_of_its_journal(
    whet: Run, here: Path, rows: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def stop(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".part":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stop)
        assert main(list(generate("generate.output=out.jsonl"))) == 130
    whole = (here / "out.jsonl").read_bytes()
    out = whet(*generate("generate.output=out.jsonl"))
    assert out.count("model:") == 1  # the first time: nothing was left to sample
    assert (here / "out.jsonl").read_bytes() == whole
    assert not list(here.glob("*.part"))


def test_other_settings_do_not_go_on(refused: Run, whet: Run, here: Path, rows: list) -> None:
    process = start(here, *generate("generate.output=out.jsonl"))
    part = here / "out.jsonl.part"
    assert process.wait_for(lambda: part.exists() and part.read_bytes().count(b"\n") > 2)
    process.kill()
    assert part.exists()
    message = refused(*generate("generate.output=out.jsonl", "worker.rollout.temperature=0.5"))
    assert "temperature=1.0 (now 0.5)" in message
    write_rows(here / "prompts.jsonl", rows[:-1])
    assert "data=" in refused(*generate("generate.output=out.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate.files=",), "has no value"),
        (("generate.files=nowhere.jsonl",), "there is no file or folder"),
        (("generate.output=out.csv",), "must end in .jsonl or .parquet"),
        (("generate.outputs=out.jsonl",), "did you mean generate.output"),
        (("worker.rollout.temperature=0",), "makes all 3 samples"),
        (("trainer.n_gpus_per_node=2",), "samples on one device"),
        (("worker.actor.model.model_path=nowhere",), "there is no such model folder"),
        (("trainer.load_checkpoint_path=.",), "it has no manifest.json"),
        (("data.prompt_key=question",), "has no such column"),
        (("worker.rollout.name=openai",), "server_address is not set"),
    ],
)
def test_mistakes_are_named(refused: Run, rows: list, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(*generate(*arguments))


def test_an_output_that_is_there_is_not_replaced(refused: Run, here: Path, rows: list) -> None:
    (here / "out.jsonl").write_text("mine")
    assert "is there already" in refused(*generate("generate.output=out.jsonl"))
    assert (here / "out.jsonl").read_text() == "mine"
