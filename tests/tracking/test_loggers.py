"""Metrics, samples and loggers: nothing is lost by a kill, and no logger can stop a run."""

import importlib.util
import io
import json
import math
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from whet.errors import UserError
from whet.tracking import Tracker, read_metrics
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.types import Prompt, Sample, Segment

WRITER = """
import sys
from pathlib import Path
from whet.tracking.run_folder import append_metrics, read_metrics

path = Path(sys.argv[1])
step = read_metrics(path)[-1]["step"] if path.exists() and read_metrics(path) else 0
print("ready", flush=True)
while True:
    append_metrics(path, step, {f"metric/{i}": step + i / 7 for i in range(500)})
    step += 1
"""


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def track(tmp_path, screen):
    """Build trackers on one run folder, as a run and its resumption would."""
    folder = RunFolder(tmp_path / "run")

    def build(*loggers, **options):
        return Tracker(loggers, folder, Console(stream=screen, total_steps=9), "project", "experiment", **options)

    yield build
    folder.close()


def sample(index=0, answer="7", scores=None, failure=None, text="it is 7"):
    prompt = Prompt(uid="train.jsonl:3", ids=[5, 6], text="3 + 4?", answer=answer)
    return Sample(
        prompt,
        [Segment([1, 2, 3], log_probs=[-0.5, -0.25, 0.0])],
        finish="stop",
        index=index,
        group=12,
        text=text,
        scores={"overall": 1.0} if scores is None else scores,
        failure=failure,
        advantage=0.5,
    )


def test_one_strict_json_object_per_step(track, tmp_path):
    tracker = track("file")
    tracker.log(0, {"val/accuracy": 0.25})
    tracker.log(1, {"reward/overall": float("nan"), "actor/grad_norm": float("inf"), "perf/total_tokens": 7})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"step": 0, "val/accuracy": 0.25},
        {
            "step": 1,
            "reward/overall": None,
            "actor/grad_norm": None,
            "perf/total_tokens": 7,
            "not_finite": {"reward/overall": "nan", "actor/grad_norm": "inf"},
        },
    ]
    tracker.log(1, {"actor/grad_norm": -float("inf")})
    _, read = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert math.isnan(read.pop("reward/overall"))
    assert read == {"step": 1, "actor/grad_norm": -math.inf, "perf/total_tokens": 7}


def test_resume_appends_after_a_torn_line_and_a_redone_step_counts_once(track, tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    track("file").log(1, {"a": 1.0})
    track("file").log(2, {"a": 2.0})
    with path.open("ab") as file:
        file.write(b'{"step": 3, "a": 3.0, "b\xc3')
    before = path.read_bytes()
    track("file").log(2, {"a": 2.5})
    assert path.read_bytes().startswith(before + b"\n")
    assert read_metrics(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.5}]


def test_killed_writers_leave_whole_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.05)
        process.kill()
        process.wait()
    records = read_metrics(path)
    assert [record["step"] for record in records] == list(range(len(records)))
    assert all(record[f"metric/{i}"] == record["step"] + i / 7 for record in records for i in range(500))
    torn = sum(1 for line in path.read_bytes().splitlines() if not line.endswith(b"}"))
    assert torn <= 6


def test_samples_become_a_table(track, tmp_path):
    tracker = track("file")
    samples = [
        sample(0, scores={"overall": 1.0, "accuracy": 1.0}),
        sample(1, answer={"x": [1]}, scores={"overall": 0.0}, failure="timeout", text="half a pair \ud83d"),
    ]
    tracker.samples(12, "train", samples)
    rows = pq.read_table(tmp_path / "run" / "samples" / "train_000012.parquet").to_pylist()
    assert rows[0] == {
        "step": 12,
        "uid": "train.jsonl:3",
        "group": 12,
        "index": 0,
        "prompt": "3 + 4?",
        "response": "it is 7",
        "answer": "7",
        "finish": "stop",
        "length": 3,
        "turns": 1,
        "version": 0,
        "reward": 1.0,
        "failure": None,
        "advantage": 0.5,
        "dropped": False,
        "score/accuracy": 1.0,
    }
    assert rows[1]["answer"] == '{"x": [1]}'
    assert rows[1]["failure"] == "timeout"
    assert rows[1]["score/accuracy"] is None
    assert rows[1]["response"] == "half a pair ?"


def test_token_log_probs_come_on_request(track, tmp_path):
    track("file", log_token_log_probs=True).samples(1, "val", [sample()])
    (row,) = pq.read_table(tmp_path / "run" / "samples" / "val_000001.parquet").to_pylist()
    assert row["token_ids"] == [1, 2, 3]
    assert row["token_log_probs"] == [-0.5, -0.25, 0.0]


def test_samples_can_be_turned_off_and_none_is_fine(track, tmp_path):
    track("file", log_samples=False).samples(1, "train", [sample()])
    assert not (tmp_path / "run" / "samples").exists()
    track("file").samples(2, "train", [])
    assert pq.read_table(tmp_path / "run" / "samples" / "train_000002.parquet").num_rows == 0


def test_generations_are_kept_and_shown(track, tmp_path, screen):
    track("console", "file").table(4, [sample()])
    record = json.loads((tmp_path / "run" / "generations.jsonl").read_text())
    assert (record["step"], record["response"], record["scores"]) == (4, "it is 7", {"overall": 1.0})
    assert "it is 7" in screen.getvalue()


def test_the_console_gets_a_line_for_training_and_one_for_validation(track, screen):
    tracker = track("console")
    tracker.log(0, {"val/accuracy": 0.25})
    tracker.log(1, {"reward/overall": 0.5, "val/accuracy": 0.75})
    assert screen.getvalue() == "val  0/9  acc  25.0%\nstep 1/9  reward  0.500\nval  1/9  acc  75.0%\n"


def test_a_logger_that_fails_is_reported_once_and_the_others_go_on(track, tmp_path, screen):
    tracker = track("file", "console")
    (tmp_path / "run" / "metrics.jsonl").mkdir()
    (tmp_path / "run" / "samples").write_text("a file in the way")
    for step in (1, 2):
        tracker.log(step, {"reward/overall": 0.5})
        tracker.samples(step, "train", [sample()])
    assert screen.getvalue().count("logging to file failed") == 1
    assert screen.getvalue().count("logging to samples failed") == 1
    assert "step 2/9" in screen.getvalue()


@pytest.mark.parametrize("name", ["wandb", "swanlab", "mlflow"])
def test_a_missing_package_is_named_before_training(track, name):
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(UserError, match=rf"trainer\.logger: {name} .*pip install 'whet\[{name}\]'"):
        track("file", name)


def test_an_unknown_logger_is_refused(track):
    with pytest.raises(UserError, match=r"tensorbord: is not one of console, .*did you mean tensorboard"):
        track("tensorbord")


def test_tensorboard_continues_where_a_killed_run_was_resumed(track, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = track("tensorboard")
    for step in (1, 2, 3):
        first.log(step, {"reward/overall": float(step)})
    first.close()
    second = track("tensorboard")
    for step in (3, 4):
        second.log(step, {"reward/overall": step + 0.5})
    second.table(4, [sample()])
    second.close()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/overall")] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.5),
        (4, 4.5),
    ]


@pytest.mark.parametrize("name", ["wandb", "swanlab", "mlflow"])
def test_trackers_that_are_installed_resume_the_same_run(track, tmp_path, monkeypatch, name):
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    identities = []
    for _ in range(2):
        tracker = track(name, settings={"trainer": {"max_steps": None}})
        tracker.log(1, {"reward/overall": 0.5, "val/pass@4": 0.25, "actor/kl_loss": float("nan")})
        tracker.table(1, [sample()])
        tracker.close()
        identities.append((tmp_path / "run" / f".{name}_run_id").read_text())
    assert identities[0] == identities[1]
