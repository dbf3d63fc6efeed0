"""Two steps of examples/smollm2_gsm8k.yaml at a size that two cores finish in a minute."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from whet_process import run_folder, start, write_rows

from whet.cli import examples_folder
from whet.tracking import read_metrics

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few problems of GSM8K as a data file."""
    if not GSM8K.is_dir():
        pytest.skip(f"GSM8K is not in {GSM8K}")
    with (GSM8K / "train.jsonl").open() as lines:
        rows = [json.loads(line) for line in islice(lines, 8)]
    return write_rows(tmp_path_factory.mktemp("gsm8k") / "train.jsonl", rows)


@pytest.mark.slow
def test_two_steps(smollm2, problems, tmp_path):
    process = start(
        tmp_path,
        "train",
        f"config={examples_folder() / 'smollm2_gsm8k.yaml'}",
        f"worker.actor.model.model_path={smollm2}",
        f"data.train_files={problems}",
        "data.val_files=''",
        "data.rollout_batch_size=2",
        "data.max_response_length=24",
        "worker.actor.global_batch_size=2",
        "trainer.max_steps=2",
        "trainer.save_freq=-1",
        "trainer.save_model_only=true",
        "trainer.val_before_train=false",
    )
    assert process.wait(300) == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, "smollm2_gsm8k") / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        print(f"step {line['step']}: {line['timing_s/step']:.1f} s, peak {line['perf/max_rss_gb']:.2f} GB")
        assert line["rollout/log_prob_diff_mean"] < 1e-4
        assert line["actor/grad_skipped"] == 0
        assert line["reward/failed"] == 0
        assert line["timing_s/step"] < 60
    assert lines[-1]["perf/max_rss_gb"] < 4.5
