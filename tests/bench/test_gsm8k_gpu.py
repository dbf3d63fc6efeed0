"""examples/gsm8k_gpu: its statistics, its demonstrations, and the whole of it at a tiny size on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whet.config import load_config
from whet.model.load import load_tokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "gsm8k_gpu"
TINY = (
    f"data.format_prompt={EXAMPLES / 'format_prompt' / 'quickstart.jinja'}",
    "data.max_prompt_length=48",
    "data.max_response_length=32",
    "data.rollout_batch_size=4",
    "trainer.device=cpu",
)


@pytest.fixture(autouse=True)
def _example_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))


@pytest.fixture
def data(quickstart: Path, tmp_path: Path) -> Path:
    """The quickstart's problems with GSM8K's columns, a calculator's annotation in each solution."""
    for name, count in (("train", 32), ("test", 8)):
        rows = [json.loads(line) for line in (quickstart / f"{name}.jsonl").read_text().splitlines()[:count]]
        lines = [{"question": r["problem"], "answer": f"<<1+1=2>>Answer: {r['answer']}"} for r in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_wilson_interval_is_the_textbook_one():
    from evaluate import wilson

    # Newcombe (1998), table I: 81 of 263, and 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_gain_is_paired():
    from evaluate import Score, gain

    before = Score(500, 1000, [i % 2 == 0 for i in range(1000)])
    after = Score(600, 1000, [i % 2 == 0 or i < 200 for i in range(1000)])
    low, high = gain(before, after)
    spread = 1.96 * (0.1 * 0.9 / 1000) ** 0.5  # a tenth of the problems is won, none is lost
    assert (low, high) == pytest.approx((0.1 - spread, 0.1 + spread), abs=2e-3)
    assert gain(before, before) == (0.0, 0.0)


def test_demonstrations_end_and_have_no_annotations(quickstart, data):
    from warm_up import demonstrations

    tokenizer = load_tokenizer(str(quickstart / "model"))
    files = f"data.train_files={data / 'train.jsonl'}"
    config = load_config([f"config={EXAMPLE / 'warm_up.yaml'}", files, *TINY])
    shown = demonstrations(config, tokenizer)
    assert len(shown) == 32
    for sample in shown:
        assert sample.ids[-1] == tokenizer.eos_token_id
        text = tokenizer.decode(sample.ids[:-1])
        assert text == sample.prompt.answer.removeprefix("<<1+1=2>>")
        assert len(sample.ids) == len(sample.mask) == len(sample.log_probs)


def test_a_curve_reads_back_as_it_was_written(tmp_path):
    from curve import Point, read_csv, write_csv

    points = [Point(0.5, "before", None, 0.25, 0.125, 0.5), Point(1.5, "step 1", 0.75)]
    write_csv(points, tmp_path / "curve.csv")
    assert read_csv(tmp_path / "curve.csv") == points


@pytest.mark.slow
def test_the_whole_recipe_tiny_on_a_cpu(quickstart, data, tmp_path):
    out = tmp_path / "out"
    small = ["worker.actor.global_batch_size=4", "worker.rollout.n=4", "worker.reward.num_cpus=1", "trainer.val_freq=2"]
    sizes = ["--minutes", "0.01", "--reserve", "0"]  # one step, which is the least it makes
    places = ["--data", str(data), "--out", str(out), "--model", str(quickstart / "model")]
    command = [sys.executable, str(EXAMPLE / "run.py"), *places, *sizes]
    done = subprocess.run([*command, "--set", *TINY, *small, "--warm-up-set", *TINY], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text())
    assert results["grpo"]["steps"] >= 1
    assert results["warm_up"]["steps"] == 5 * 32 // 4  # the epochs of warm_up.yaml
    assert {results[name]["problems"] for name in ("before", "warm_up", "grpo")} == {8}
    assert (out / "curve.png").stat().st_size > 0
    assert (out / "curve.csv").read_text().count("\n") == results["grpo"]["steps"] + 4
