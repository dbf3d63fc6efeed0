"""examples/or1: data in Skywork-OR1's pickles, filtered, trained in stages and evaluated on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fork_server import run_script

from whet.cli import main
from whet.config import check_config, load_config, read_stages
from whet.data.files import read_rows
from whet.tracking import read_metrics

FOLDER = Path(__file__).parents[1] / "examples" / "or1"
CONFIG = f"config={FOLDER / 'digits.yaml'}"


@pytest.mark.early
def test_prepare_filter_train_in_stages_and_evaluate(
    quickstart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_script(FOLDER / "make_data.py", "or1_data", folder=tmp_path).code == 0
    assert read_rows("or1_data/train.pkl")[0]["reward_model"]["ground_truth"] == [
        read_rows(str(quickstart / "train.jsonl"))[0]["answer"]
    ]
    filtering = ["data", "filter", "or1_data/train.pkl", "or1_data/kept.pkl", CONFIG, "--n", "4", "eval.limit=120"]
    assert main(filtering) == 0
    kept = read_rows("or1_data/kept.pkl")
    assert 0 < len(kept) < 120
    assert all(0 < row["pass_rate"] < 1 for row in kept)
    stages = "trainer.stages=[{steps: 1, overrides: {data.max_response_length: 8}}, {steps: 1}]"
    few = ["data.rollout_batch_size=8", "worker.actor.global_batch_size=8", "trainer.device=cpu", stages]
    short = ["trainer.val_before_train=false", "trainer.val_freq=-1", "trainer.save_freq=2"]
    assert main(["train", CONFIG, *few, *short]) == 0
    metrics = read_metrics(tmp_path / "checkpoints/whet/or1_digits/metrics.jsonl")
    assert [row["train/stage"] for row in metrics if "train/stage" in row] == [1, 2]
    assert metrics[0]["response_length/max"] <= 8
    assert main(["eval", "checkpoints/whet/or1_digits", "eval.n=4", "eval.limit=20", "eval.output=report"]) == 0
    found = json.loads(Path("report/report.json").read_text())["datasets"]["val"]["metrics"]
    assert found["avg@4"]["low"] <= found["avg@4"]["mean"] <= found["avg@4"]["high"]
    assert found["pass@1"]["mean"] <= found["pass@4"]["mean"]
    capsys.readouterr()


def test_the_config_for_a_real_model() -> None:
    config = load_config([f"config={FOLDER / 'or1_7b.yaml'}"])
    check_config(config)
    lengths = [stage.config.data.max_response_length for stage in read_stages(config)]
    assert lengths == [8192, 16384, 32768]
    assert config.worker.reward.manager == "yr"


def test_arguments_of_its_scripts() -> None:
    """Skywork-OR1's own spellings load."""
    given = (
        "data.train_files=[a.pkl,b.pkl] data.train_batch_size=256 data.max_response_length=8192 "
        "actor_rollout_ref.model.path=whet/quickstart actor_rollout_ref.actor.optim.lr=1e-6 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.adaptive_entropy.enabled=True "
        "actor_rollout_ref.actor.adaptive_entropy.target_entropy=0.2 actor_rollout_ref.rollout.n=16 "
        "reward_model.reward_manager=yr reward_model.is_binary_reward=True reward_model.is_power4_reward=False "
        "trainer.rejection_sample=True trainer.rejection_sample_multiplier=1"
    )
    config = load_config(given.split())
    assert config.worker.reward.manager == "yr"
    assert config.worker.reward.reward_function_kwargs == {"is_binary_reward": True, "is_power4_reward": False}
    assert config.trainer.rejection_sample
    assert config.worker.actor.adaptive_entropy.target_entropy == 0.2
