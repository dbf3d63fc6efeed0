"""Whole runs on a real vLLM: every step samples with the weights that the last one made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import Tiny
from training.whet_process import SMALL

from whet.config import load_config
from whet.tracking import read_metrics
from whet.training.job import train

QUICKSTART = Path(__file__).parents[4] / "examples/quickstart.yaml"
SIZES = (
    "data.max_prompt_length=96",
    "data.max_response_length=8",
    "worker.reward.num_cpus=1",
    "worker.actor.optim.lr=1e-2",
    "trainer.max_steps=3",
    "trainer.save_freq=2",
    "trainer.val_freq=-1",
    "trainer.val_before_train=false",
    "worker.rollout.name=vllm",
    "worker.rollout.enforce_eager=true",
    "worker.rollout.max_num_seqs=16",
)


def test_a_run_samples_with_the_weights_of_each_step_and_resumes(
    vllm_python: str, model_of: Callable[..., Tiny], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"Sort these digits: {i} 2 1", "answer": f"1 2 {i}"} for i in range(3, 9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    paths = ("data.train_files=rows.jsonl", "data.val_files=rows.jsonl", "trainer.save_checkpoint_path=run")
    model = f"worker.actor.model.model_path={model_of('tied llama').path}"
    engine = f"worker.rollout.python={vllm_python}"
    # A reward by length: a random model never sorts, and without differences there is nothing to learn.
    (tmp_path / "reward.py").write_text(
        "def score(each):\n    return {'overall': float(len(each['response'])), 'accuracy': 0.0}\n"
    )
    reward = ("worker.reward.reward_function=reward.py:score", "worker.reward.reward_type=sequential")
    common = (f"config={QUICKSTART}", *SMALL, *SIZES, *paths, model, engine, *reward)
    train(load_config([*common]))
    train(load_config([*common, "trainer.max_steps=4"]))  # goes on from the weights of the last step
    steps = read_metrics(Path("run/metrics.jsonl"))
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    for line in steps:
        assert line["actor/grad_norm"] > 0
        # The learner scores the samples anew: had vLLM other weights than the learner's, these would not be close.
        assert line["rollout/log_prob_diff_max"] < 1e-3
    assert "vllm" in Path("run/rollout.log").read_text()
