"""Whole runs of VPPO on a small vision-language model, with rows of images, of videos and of text alone."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_train import DOCS, documented_metrics
from whet_process import outcome, run_folder, settled, train

from whet.assets.questions import TASKS
from whet.assets.vision import SCHEMA, row
from whet.tracking import read_metrics

pytestmark = pytest.mark.early

EXAMPLE = Path(__file__).parents[2] / "examples/vision/vppo.yaml"
BOTH = ("algorithm.use_vppo_on_entropy=true", "algorithm.use_entropy_penalty=true")
SHORT = (
    "trainer.max_steps=2",
    "trainer.val_freq=-1",
    "trainer.val_before_train=false",
    "trainer.save_freq=2",
    "data.rollout_batch_size=6",
    "worker.actor.global_batch_size=3",  # two updates a step
    "data.max_prompt_length=400",
)


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The built-in model that sees, rows of every task, and a reward that prefers some samples to others."""
    folder = tmp_path_factory.mktemp("vision")
    rows = [row(task, draw(random.Random(task))) for task, draw in TASKS.items()]
    rows.append({"problem": "How many is two and two?", "answer": "4", "images": [], "videos": [], "task": "text"})
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "rows.parquet")
    (folder / "reward.py").write_text(
        "def main(reward_input):\n    return sum(map(ord, reward_input['response'])) % 7 / 7\n"
    )
    return (
        f"config={EXAMPLE}",
        f"data.train_files={folder / 'rows.parquet'}",
        f"data.val_files={folder / 'rows.parquet'}",
        "data.format_prompt=null",
        f"worker.reward.reward_function={folder / 'reward.py'}:main",
        "worker.actor.model.model_path=whet/vision",
        *SHORT,
    )


def run(folder: Path, *arguments: str) -> Path:
    code, text = train(folder, *arguments)
    assert code == 0, text
    return run_folder(folder, "vppo")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...]) -> Path:
    """The example, with entropy selection and penalty besides."""
    return run(tmp_path_factory.mktemp("plain"), *arguments, *BOTH)


def test_metrics_are_those_of_the_documents(plain: Path) -> None:
    table = DOCS.read_text().split("## VPPO")[1].split("\n## ")[0]
    promised = {
        name for line in table.splitlines() if line.startswith("| `") for name in line.split("|")[1].split("`")[1::2]
    }
    assert len(promised) > 12
    for line in read_metrics(plain / "metrics.jsonl"):
        assert promised <= line.keys()
        others = line.keys() - promised - {"step"}
        assert not [name for name in others if not any(pattern.fullmatch(name) for pattern in documented_metrics())]
        assert all(value is not None and math.isfinite(value) for value in line.values())
        assert line["actor/scaling_factor_mean"] == pytest.approx(1.0)
        assert line["actor/low_var_kl_mean_selected"] > line["actor/low_var_kl_mean_rejected"]
        assert line["actor/perception_token_fraction"] < line["actor/combined_token_fraction"] < 1
        assert line["actor/grad_norm"] > 0
        assert line["rollout/log_prob_diff_max"] < 1e-4


@pytest.mark.parametrize(
    "how",
    [
        (
            "worker.actor.dynamic_batching=false",
            "worker.actor.micro_batch_size_per_device_for_update=2",
            "worker.actor.micro_batch_size_per_device_for_experience=3",
        ),
        ("worker.actor.share_prefix=false",),
    ],
    ids=["by samples", "unshared"],
)
def test_how_it_is_computed_does_not_change_the_first_step(
    tmp_path: Path, arguments: tuple[str, ...], plain: Path, how: tuple[str, ...]
) -> None:
    one, other = (settled(each / "metrics.jsonl")[0] for each in (plain, run(tmp_path, *arguments, *BOTH, *how)))
    assert one.keys() == other.keys()
    for name, value in one.items():
        tiny = 1e-4 if name.startswith("rollout/") else 1e-5
        assert other[name] == pytest.approx(value, rel=1e-3, abs=tiny), name


def test_the_same_run_again_is_the_same(tmp_path: Path, arguments: tuple[str, ...], plain: Path) -> None:
    assert outcome(run(tmp_path, *arguments, *BOTH), 2) == outcome(plain, 2)


@pytest.mark.parametrize(
    "keys",
    [
        ("algorithm.perception_kl=full", "algorithm.perception_mask=blur"),
        ("algorithm.match=vppo", "algorithm.perception_mask=noise"),
        ("algorithm.use_vppo_on_perception=false", "worker.rollout.name=hf", "algorithm.perception_mask=blank"),
    ],
    ids=["exact", "as published", "shaping alone"],
)
def test_variants_train(tmp_path: Path, arguments: tuple[str, ...], keys: tuple[str, ...]) -> None:
    for line in settled(run(tmp_path, *arguments, "trainer.max_steps=1", *keys) / "metrics.jsonl"):
        assert all(value is not None and math.isfinite(value) for value in line.values())
        assert line["actor/grad_norm"] > 0
        assert line["actor/sensitivity_score_mean"] > 0
        assert ("actor/perception_token_fraction" in line) == ("algorithm.use_vppo_on_perception=false" not in keys)


def test_a_model_of_text_is_told_so(tmp_path: Path, few_rows: tuple[str, str]) -> None:
    code, text = train(tmp_path, *few_rows, "algorithm.use_vppo_on_perception=true")
    assert code != 0
    assert "algorithm.use_vppo_on_perception=true: the model of worker.actor.model.model_path reads text only" in text
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize("kl", ["k3", "full"])
def test_two_ranks_train_as_one_process_does(tmp_path: Path, arguments: tuple[str, ...], kl: str) -> None:
    pytest.importorskip("ray")
    keys = (*arguments, *BOTH, f"algorithm.perception_kl={kl}")
    alone, two = (
        settled(run(tmp_path / str(devices), *keys, f"trainer.n_gpus_per_node={devices}") / "metrics.jsonl")
        for devices in (1, 2)
    )
    assert len(alone) == len(two) == 2
    for one, other in zip(alone, two):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert other[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
