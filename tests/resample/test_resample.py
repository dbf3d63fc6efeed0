"""Samples of real short runs drawn again, equal token by token where the weights are kept, and branches with scores."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from whet.cli import main
from whet.config.examples import examples_folder
from whet.errors import UserError
from whet.resample.job import Resampler
from whet.resample.request import read_request

SHORT = (
    "trainer.max_steps=3",
    "trainer.val_freq=2",
    "trainer.save_freq=1",
    "trainer.save_limit=-1",
    "data.rollout_batch_size=4",
    "worker.actor.global_batch_size=4",
    "worker.rollout.n=3",
    "worker.rollout.val_override_config={n: 1, temperature: 1.0}",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """A run of three steps with a checkpoint of each."""
    return trained(tmp_path_factory.mktemp("native") / "run", few_rows)


def trained(folder: Path, few_rows: tuple[str, str], *more: str) -> Path:
    config = f"config={examples_folder() / 'quickstart.yaml'}"
    assert main(["train", config, *few_rows, *SHORT, f"trainer.save_checkpoint_path={folder}", *more]) == 0
    return folder


@pytest.fixture(scope="module")
def resampler() -> Iterator[Resampler]:
    with Resampler() as opened:
        yield opened


def ask(resampler: Resampler, folder: Path, **given: Any) -> dict[str, Any]:
    return resampler.answer(folder, read_request({"kind": "again", "step": 1, "row": 0, **given}))


def test_every_sample_of_a_step_comes_out_again(run: Path, resampler: Resampler) -> None:
    for step in (1, 2, 3):
        for row in (0, 5, 11):
            found = ask(resampler, run, step=step, row=row)
            assert found["equal"], found
            assert found["exact"]
            assert found["version"] == step - 1
            assert all(found["was_drawn"])
    assert found["checkpoint"] == "global_step_2"
    assert ask(resampler, run, step=1)["checkpoint"] is None  # the model that the run began with
    validated = ask(resampler, run, step=2, row=1, split="val")
    assert validated["equal"]
    assert validated["checkpoint"] == "global_step_2"


def test_without_recorded_tokens_texts_are_compared(run: Path, resampler: Resampler) -> None:
    found = ask(resampler, run, step=2, row=11)  # of the fourth group; the tokens of two are recorded
    assert found["recorded"] is None
    assert found["compared"] == "text and length"
    assert found["equal"]


def test_other_weights_say_that_tokens_may_differ(run: Path, tmp_path: Path, resampler: Resampler) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "global_step_2")
    found = ask(resampler, copy, step=3)
    assert not found["exact"]
    assert found["version"] == 1
    assert "policy version 2; the nearest kept is global_step_1, version 1: tokens may differ" in found["notes"][0]
    first = ask(resampler, copy, step=3, checkpoint=0)
    assert "this is the model that the run began with, version 0" in first["notes"][0]
    with pytest.raises(UserError, match="no checkpoint of step 9; there are 1, 3"):
        ask(resampler, copy, step=3, checkpoint=9)


def test_branches_keep_what_is_before_the_token_and_have_scores(run: Path, resampler: Resampler) -> None:
    recorded = [token["id"] for token in ask(resampler, run, step=2, row=1)["recorded"]]
    same = ask(resampler, run, kind="branch", step=2, row=1, at=2)["continuations"]
    assert [token["id"] for token in same[0]["tokens"]] == recorded  # nothing changed: the same random numbers
    assert same[0]["reward"] == pytest.approx(row_of(run, 2, 1)["reward"])
    other = next(i for i in range(20, 40) if i != recorded[2])
    found = ask(resampler, run, kind="branch", step=2, row=1, at=2, token=other, n=3, temperature=1.5)
    assert found["common"] == 3
    assert len(found["continuations"]) == 3
    for each in found["continuations"]:
        assert [token["id"] for token in each["tokens"]][:3] == [*recorded[:2], other]
        assert each["reward"] is not None
    again = ask(resampler, run, kind="branch", step=2, row=1, at=2, token=other, n=3, temperature=1.5)
    assert again["continuations"] == found["continuations"]
    edited = ask(resampler, run, kind="branch", step=2, row=1, prompt="<|user|>Sort: 2 1<|end|><|assistant|>")
    assert len(edited["continuations"]) == 1
    for given, part in (
        ({"at": 400}, "the response has"),
        ({"at": 1, "token": 10**6}, "ids end at"),
        ({"at": 1, "text": "a b c"}, "not one token"),
    ):
        with pytest.raises(UserError, match=part):
            ask(resampler, run, kind="branch", step=2, row=1, **given)


def test_alternatives_are_those_of_the_weights(run: Path, resampler: Resampler) -> None:
    found = ask(resampler, run, kind="tokens", step=2, row=1, top=3)
    record = next(row for row in pq.read_table(run / "tokens" / "train_000002.parquet").to_pylist() if row["row"] == 1)
    assert [token["id"] for token in found["tokens"]] == record["token_ids"]
    assert [token["log_prob"] for token in found["tokens"]] == pytest.approx(record["new_log_probs"], abs=1e-4)
    assert found["entropies"] == pytest.approx(record["entropies"], abs=1e-4)
    for token, others in zip(found["tokens"], found["alternatives"]):
        assert len(others) == 3
        values = [each["log_prob"] for each in others]
        assert values == sorted(values, reverse=True)
        assert token["log_prob"] <= values[0] + 1e-5


def test_nothing_is_written_to_the_run(run: Path, resampler: Resampler) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    ask(resampler, run, kind="branch", step=1, row=0, n=2)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resample", str(run), "--step", "2", "--row", "1"]) == 0
    assert "equal:" in capsys.readouterr().out
    assert main(["resample", str(run), "--step=2", "--row=1", "--at", "2", "--n", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["continuations"]) == 2
    for arguments, part in (
        ([], "takes one run folder"),
        ([str(run), "--step", "x"], "must be a whole number"),
        ([str(run), "--step", "2", "--row", "99"], "there is no row 99"),
        ([str(run), "--step", "77", "--row", "0"], "no train samples of step 77"),
        ([str(run), "--what"], "no option --what"),
        ([str(run / "gone"), "--step", "2", "--row", "1"], "there is no folder"),
    ):
        assert main(["resample", *arguments]) == 2
        assert part in capsys.readouterr().err


@pytest.mark.slow
def test_the_hf_engine_draws_the_whole_batch_again(
    tmp_path: Path, few_rows: tuple[str, str], resampler: Resampler
) -> None:
    more = ("worker.rollout.name=hf", "worker.rollout.max_num_seqs=5", "trainer.log_token_log_probs=true")
    folder = trained(tmp_path / "hf", few_rows, *more)
    for step, row, split in ((1, 0, "train"), (2, 7, "train"), (3, 11, "train"), (2, 3, "val")):
        found = ask(resampler, folder, step=step, row=row, split=split)
        assert found["equal"], found
        assert "rows of its batch" in found["notes"][1]


def row_of(folder: Path, step: int, row: int) -> dict[str, Any]:
    return dict(pq.read_table(folder / "samples" / f"train_{step:06d}.parquet").to_pylist()[row])


def test_a_run_that_goes_on_draws_what_its_checkpoint_draws_and_trains_as_ever(
    run: Path, tmp_path: Path, few_rows: tuple[str, str], resampler: Resampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"kind": "branch", "step": 2, "row": 1, "at": 2, "n": 3, "temperature": 1.3}
    expected = ask(resampler, run, **asked, checkpoint=3)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "global_step_3")  # the step is trained again
    with pytest.raises(UserError, match="this run is not going on"):
        ask(Resampler(), copy, **asked, live=True)
    monkeypatch.setattr("whet.tracking.status.read_status", lambda folder: "running")
    found: dict[str, Any] = {}
    asking = threading.Thread(target=lambda: found.update(ask(Resampler(), copy, **asked, live=True)))
    asking.start()
    while not (copy / "requests").exists():
        time.sleep(0.01)
    trained(copy, few_rows)
    asking.join(60)
    assert "Drawn by the run itself after step 3, with policy version 3" in found["notes"][0]
    assert found["continuations"] == expected["continuations"]
    assert not list((copy / "requests").iterdir())
    name = "samples/train_000003.parquet"
    assert pq.read_table(copy / name).equals(pq.read_table(run / name))
