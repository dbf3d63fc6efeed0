"""The examples in examples/vision: the small ones train, the large ones load, and counting is learned by looking."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from whet_process import run_folder, start

from whet.assets import builtin
from whet.config import check_config, check_files, load_config
from whet.tracking import read_metrics

pytestmark = pytest.mark.early

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "vision"
LARGE = sorted(FOLDER.glob("qwen*.yaml"))
SMALL = sorted(set(FOLDER.glob("*.yaml")) - set(LARGE))
RUNS = [(path.stem, "vision") for path in SMALL] + [("count_grpo", "vision3"), ("video", "vision3")]
CUT = (  # sizes only; the rows of validation are a tenth of those for training
    "trainer.device=cpu",
    "data.rollout_batch_size=4",
    "worker.rollout.n=4",
    "worker.actor.global_batch_size=4",
    "trainer.max_steps=2",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=-1",
)


@pytest.fixture(scope="module")
def models(whet_home: Path) -> dict[str, Path]:
    """Both built-in models."""
    builtin("whet/shapes", print)
    return {name: builtin(f"whet/{name}", print) / "model" for name in ("vision", "vision3")}


@pytest.mark.parametrize(("name", "model"), RUNS)
def test_small_example_trains(name: str, model: str, models: dict[str, Path], tmp_path: Path) -> None:
    example = FOLDER / f"{name}.yaml"
    config = load_config([f"config={example}"])
    assert config.worker.actor.model.model_path == "whet/vision"
    path, rows = f"worker.actor.model.model_path={models[model]}", f"data.train_files={config.data.val_files}"
    process = start(tmp_path, "train", f"config={example}", *CUT, path, rows)
    assert process.wait() == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, name) / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert math.isfinite(line["actor/grad_norm"])
        assert line["rollout/log_prob_diff_mean"] < 1e-4
        assert line["reward/failed"] == 0


@pytest.mark.parametrize("example", LARGE, ids=lambda path: path.stem)
def test_large_example_loads(example: Path) -> None:
    config = load_config([f"config={example}"])
    check_config(config)
    check_files(config)
    assert config.trainer.experiment_name == example.stem
    assert config.worker.actor.model.model_path.startswith("Qwen/Qwen2.5-VL-")


def test_the_promised_examples_are_there_and_in_the_guide() -> None:
    promised = "count_grpo geo_grpo multi_image video vppo"
    assert {path.stem for path in SMALL} == set(promised.split())
    guide = (ROOT / "docs" / "vision.md").read_text()
    for path in (*SMALL, *LARGE):
        assert path.name in guide, path.name
    for name in re.findall(r"`(\w+\.(?:jinja|py))[:`]", guide):
        assert list(FOLDER.parent.glob(f"*/{name}")), name


@pytest.mark.slow
def test_counting_is_learned_and_learned_by_looking(tmp_path: Path) -> None:
    """From at most 40% to at least 80% on pictures it never saw; without pictures, chance."""
    example = f"config={FOLDER / 'count_grpo.yaml'}"
    process = start(tmp_path, "train", example, "trainer.device=cpu", "trainer.val_generations_to_log=0")
    assert process.wait(1800) == 0, process.text()
    run = run_folder(tmp_path, "count_grpo")
    lines = read_metrics(run / "metrics.jsonl")
    assert lines[0]["val/accuracy"] <= 0.40
    assert lines[-1]["val/accuracy"] >= 0.80

    blank = (
        "trainer.val_only=true",
        "data.val_files=whet/shapes@count_blank",
        f"trainer.load_checkpoint_path={run / 'global_step_{}'.format(lines[-1]['step'])}",
        "trainer.experiment_name=count_blank",
    )
    process = start(tmp_path, "train", example, "trainer.device=cpu", *blank)
    assert process.wait(300) == 0, process.text()
    (line,) = read_metrics(run_folder(tmp_path, "count_blank") / "metrics.jsonl")
    assert abs(line["val/accuracy"] - 0.20) < 0.08
