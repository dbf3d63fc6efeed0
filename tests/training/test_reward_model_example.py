"""examples/reward_model: the model is made, and both configs train with it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from judge_server import blocks, serving
from whet_process import settled, start

FOLDER = Path(__file__).parents[2] / "examples" / "reward_model"
SHORT = (
    "trainer.device=cpu",
    "trainer.max_steps=2",
    "trainer.val_freq=-1",
    "trainer.val_before_train=false",
    "data.rollout_batch_size=4",
    "worker.rollout.n=4",
    "worker.actor.global_batch_size=4",
)


@pytest.fixture(scope="module")
def model(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("make_model", FOLDER / "make_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("reward") / "model"
    module.main(str(folder), 2)
    return folder


def test_the_model_trains_a_policy(tmp_path, model):
    started = start(tmp_path, "train", f"config={FOLDER / 'model.yaml'}", *SHORT, f"worker.reward.model.path={model}")
    assert started.wait() == 0, started.text()
    last = settled(next(tmp_path.rglob("metrics.jsonl")))[-1]
    assert last["reward/overall"] == pytest.approx(last["reward/model"])  # the function is not paid for
    assert "reward/accuracy" in last


def test_the_judge_reads_the_rubric(tmp_path, model):
    def verdict(question: str) -> str:
        assert question.startswith("A model was asked to sort digits")
        return f"Score: {min(10, len(blocks(question)[0]))}"

    with serving(verdict) as server:
        address = (f"worker.reward.model.path={model}", f"worker.reward.judge.base_url={server.url}")
        started = start(tmp_path, "train", f"config={FOLDER / 'judge.yaml'}", *SHORT, *address)
        assert started.wait() == 0, started.text()
    last = settled(next(tmp_path.rglob("metrics.jsonl")))[-1]
    assert last["reward/overall"] == pytest.approx(last["reward/judge"] + 0.2 * last["reward/model"])
    assert server.asked
