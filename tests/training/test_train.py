"""Whole runs of `whet train`: every variant trains, says what it did, and writes down what the documents promise."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import run_folder, settled, train, write_rows

from whet.tracking import read_metrics

pytestmark = pytest.mark.early

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
SHORT = ("trainer.max_steps=3", "trainer.val_freq=-1", "trainer.save_freq=-1")
KL_NAMES = ("k1", "k2", "k3", "k1+", "full")
KL = ("algorithm.disable_kl=false", "algorithm.kl_coef=0.05")
# A number from two log-probs takes the way of k3, whichever it is (tests/algos/test_kl.py); a full one has its own.
QUICK_KL = ("k3", "full")
VARIANTS: dict[str, tuple[str, ...]] = {
    "plain": ("trainer.log_token_log_probs=true", "trainer.logger=[console,file,tensorboard]"),
    "hf": ("worker.rollout.name=hf",),
    "rloo": ("algorithm.adv_estimator=rloo",),
    "remax": ("algorithm.adv_estimator=remax",),
    "token baseline": ("algorithm.adv_estimator=optimal_token_baseline",),
    "ppo": ("algorithm.adv_estimator=gae", "worker.critic.global_batch_size=4", "worker.critic.optim.lr=1e-3"),
    "draws": ("data.mini_rollout_batch_size=2",),
    "recipes": (
        "algorithm.use_pf_ppo=true",
        "worker.actor.entropy_coeff=0.01",
        "trainer.stages=[{steps: 2}, {steps: 1, overrides: {worker.rollout.n: 6}}]",
    ),
    "by samples": (
        "worker.actor.dynamic_batching=false",
        "worker.actor.micro_batch_size_per_device_for_update=2",
        "worker.actor.micro_batch_size_per_device_for_experience=8",
    ),
    "unshared": ("worker.actor.share_prefix=false", "worker.actor.model.enable_gradient_checkpointing=true"),
    "updates": ("worker.actor.global_batch_size=2", "worker.actor.ppo_epochs=2"),
    "seq": ("worker.actor.loss_avg_mode=seq", "algorithm.norm_adv_by_std=false"),
    "corrected": ("algorithm.rollout_correction=decoupled_token_is",),
    "entropy": (
        "worker.actor.loss_type=kl_cov",
        "worker.actor.entropy_coeff=0.001",
        "worker.actor.use_entropy_penalty=true",
    ),
    "bf16": ("worker.actor.optim.strategy=adamw_bf16",),
    **{f"{name} in loss": (*KL, "algorithm.use_kl_loss=true", f"algorithm.kl_penalty={name}") for name in KL_NAMES},
    **{f"{name} in reward": (*KL, f"algorithm.kl_penalty={name}") for name in KL_NAMES},
}
SLOW = {f"{name} in {where}" for name in KL_NAMES if name not in QUICK_KL for where in ("loss", "reward")}
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in VARIANTS]

ROW = {"problem": "Sort these digits: 3 1 2 5", "answer": "1 2 3 5"}
FATEFUL = """
import os, time

def {name}:
    scores = []
    for each in {inputs}:
        if each["fate"] == "raise":
            raise ValueError("no score for this one")
        if each["fate"] == "hang":
            time.sleep(60)
        if each["fate"] == "exit":
            os._exit(3)
        scores.append("none" if each["fate"] == "bad" else {{"overall": 1.0, "accuracy": 1.0}})
    return {result}
"""


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Callable[[str], Path]:
    """The run folder of a variant, trained when it is first asked for."""
    done: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in done:
            folder = tmp_path_factory.mktemp("variant")
            code, text = train(folder, *few_rows, *SHORT, *VARIANTS[name])
            assert code == 0, text
            assert "warning" not in text
            done[name] = run_folder(folder)
        return done[name]

    return find


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The metrics of the training steps."""
    return [line for line in settled(run / "metrics.jsonl") if line["step"] > 0]


@pytest.mark.parametrize("name", NAMES)
def test_variant_trains(run_of, name):
    steps = steps_of(run_of(name))
    assert [line["step"] for line in steps] == [1, 2, 3]
    for line in steps:
        assert all(value is not None and math.isfinite(value) for value in line.values())
        assert line["actor/grad_skipped"] == 0
        assert line["reward/failed"] == 0
    # A step whose groups all agree within themselves has no gradient; that of every step has not.
    assert any(line["actor/grad_norm"] > 0 for line in steps)
    timings = read_metrics(run_of(name) / "metrics.jsonl")[-1]
    assert ("timing_s/old_log_probs" in timings) == (name in ("hf", "updates", "corrected"))
    assert ("timing_s/ref_log_probs" in timings) == (" in " in name and "full" not in name)
    assert ("timing_s/full_kl" in timings) == (name == "full in reward")  # in the loss it is part of the update


@pytest.mark.parametrize("name", [name for name in NAMES if name.values != ("bf16",)])
def test_sampler_and_learner_agree_on_every_token(run_of, name):
    for line in steps_of(run_of(name)):
        assert line["rollout/log_prob_diff_mean"] < 1e-5
        assert line["rollout/log_prob_diff_max"] < 1e-4


@pytest.mark.parametrize("name", ["draws", "by samples", "unshared"])
def test_how_it_is_computed_does_not_change_the_first_step(run_of, name):
    plain, other = steps_of(run_of("plain"))[0], steps_of(run_of(name))[0]
    assert plain.keys() == other.keys()
    for key, value in plain.items():
        if key == "batch/draws":
            continue
        tiny = 1e-5 if key.startswith("rollout/") else 1e-6
        assert other[key] == pytest.approx(value, rel=1e-4, abs=tiny), key


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_KL else pytest.mark.slow) for name in KL_NAMES]
)
def test_kl_is_zero_while_the_policy_is_the_reference(run_of, name):
    in_reward, in_loss = steps_of(run_of(f"{name} in reward")), steps_of(run_of(f"{name} in loss"))
    assert in_reward[0]["actor/reward_kl"] == pytest.approx(0, abs=1e-5)
    assert in_loss[0]["actor/kl_loss"] == pytest.approx(0, abs=1e-5)
    assert abs(in_reward[2]["actor/reward_kl"]) > 1e-4
    assert abs(in_loss[2]["actor/kl_loss"]) > 1e-4
    assert in_reward[0]["actor/kl_coef"] == 0.05


# Every row at every step: otherwise steps differ more by their prompts than by the weights.
EVERY_ROW = ("data.rollout_batch_size=10", "worker.actor.global_batch_size=10", "worker.rollout.n=16")


@pytest.fixture(scope="module")
def far_away(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """A run that has moved away from the weights it started with, but still samples what they would."""
    folder = tmp_path_factory.mktemp("far")
    code, text = train(folder, *few_rows, *SHORT, *EVERY_ROW, "trainer.max_steps=5", "worker.actor.optim.lr=1e-3")
    assert code == 0, text
    return run_folder(folder)


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("actor/kl_loss", ("algorithm.use_kl_loss=true", "algorithm.kl_penalty=k3")),
        pytest.param(
            "actor/reward_kl",
            ("algorithm.use_kl_loss=false", "algorithm.kl_penalty=k1"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kl_alone_pulls_back_to_the_reference(tmp_path, few_rows, far_away, where, how):
    """With a reward that prefers nothing, the way leads home."""
    (tmp_path / "same.py").write_text("def main(reward_input):\n    return 1.0\n")
    code, text = train(
        tmp_path,
        *few_rows,
        *SHORT,
        *EVERY_ROW,
        *how,
        f"trainer.load_checkpoint_path={far_away}",
        f"worker.reward.reward_function={tmp_path / 'same.py'}",
        "algorithm.disable_kl=false",
        "algorithm.kl_coef=1.0",
        "worker.actor.optim.lr=5e-4",
        "trainer.max_steps=35",
    )
    assert code == 0, text
    distance = [line[where] for line in steps_of(run_folder(tmp_path))]
    assert len(distance) == 30
    # Three seeds on one processor gave ratios of 0.60 to 0.81 after 20 steps.
    assert statistics.mean(distance[-8:]) < 0.9 * statistics.mean(distance[:4])


def test_metrics_are_those_of_the_documents(run_of):
    written = set()
    for name in VARIANTS.keys() - SLOW:
        for line in read_metrics(run_of(name) / "metrics.jsonl"):
            written |= line.keys() - {"step"}
    documented = documented_metrics()
    unknown = {name for name in written if not any(pattern.fullmatch(name) for pattern in documented)}
    absent = {pattern.pattern for pattern in documented if not any(pattern.fullmatch(name) for name in written)}
    assert not unknown
    # only where a reward failed, in the last step of a run that diverged, with a teacher, and of losses with own tests
    teacher = {r"actor/teacher_kl", r"actor/distill_loss"}
    losses = {r"actor/vespo_weight", r"actor/off_policy_masked", r"actor/observation_loss", r"actor/spin_loss"}
    losses |= {r"actor/flow_residual", r"actor/sppo_residual"}
    recipes = {each for each in absent if each.startswith(("curriculum/", "prm/", "rae/", "batch/replay"))}
    assert absent == {r"val/failed", r"actor/weights_not_finite"} | teacher | losses | recipes


def documented_metrics() -> list[re.Pattern[str]]:
    """A pattern for every name in the table of docs/metrics.md; `/max` there continues the name before it."""
    table = DOCS.read_text().split("## Names")[1].split("\n## ")[0]
    patterns = []
    for line in table.splitlines():
        if not line.startswith("| `"):
            continue
        names = re.findall(r"`([^`]+)`", line.split("|")[1])
        group = names[0].rpartition("/")[0]
        for name in names:
            whole = name if not name.startswith("/") else group + name
            patterns.append(re.compile(re.escape(whole).replace("<key>", r"\w+").replace("@k", r"@\d+")))
    return patterns


def test_samples_have_the_documented_columns(run_of):
    table = DOCS.read_text().split("## Samples")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    file = pq.read_table(run_of("plain") / "samples" / "train_000001.parquet")
    documented -= {"score/<key>", "note/<key>", "media"}  # media: of runs with pictures or videos
    assert set(file.column_names) == documented | {"score/accuracy", "score/format"}
    assert file.num_rows == 16
    assert [row["index"] for row in file.to_pylist()] == list(range(4)) * 4
    for row in file.to_pylist():
        assert len(row["token_ids"]) == len(row["token_log_probs"]) == row["length"]
        assert row["response"].strip() in row["response"]
        assert all(log_prob <= 0 for log_prob in row["token_log_probs"])
    without = pq.read_table(run_of("rloo") / "samples" / "train_000001.parquet").column_names
    assert {"token_ids", "token_mask", "token_log_probs"} == set(file.column_names) - set(without)


def test_step_metrics_are_those_of_its_samples(run_of):
    for line in steps_of(run_of("plain")):
        rows = pq.read_table(run_of("plain") / "samples" / f"train_{line['step']:06d}.parquet").to_pylist()
        assert line["reward/overall"] == pytest.approx(statistics.mean(row["reward"] for row in rows))
        assert line["reward/accuracy"] == pytest.approx(statistics.mean(row["score/accuracy"] for row in rows))
        assert line["response_length/max"] == max(row["length"] for row in rows)
        assert line["response_length/clip_ratio"] == statistics.mean(row["finish"] == "length" for row in rows)
        assert all(row["version"] == line["step"] - 1 for row in rows)
        for start in range(0, 16, 4):  # GRPO: (reward - mean) / std within a group
            rewards = [row["reward"] for row in rows[start : start + 4]]
            spread = statistics.stdev(rewards)
            for row in rows[start : start + 4]:
                expected = (row["reward"] - statistics.mean(rewards)) / spread if spread else 0.0
                assert row["advantage"] == pytest.approx(expected, abs=1e-3)


def test_tensorboard_has_the_curves(run_of):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run_of("plain") / "tensorboard"))
    events.Reload()
    curve = [event.value for event in events.Scalars("reward/overall")]
    assert curve == pytest.approx([line["reward/overall"] for line in steps_of(run_of("plain"))])


@pytest.mark.parametrize("kind", ["batch", "sequential"])
def test_rewards_that_fail_cost_their_samples_only(tmp_path, kind):
    fates = ["good", "raise", "hang", "exit", "bad"]
    rows = write_rows(tmp_path / "rows.jsonl", [{**ROW, "fate": fate} for fate in fates])
    batch = kind == "batch"
    reward = FATEFUL.format(
        name="compute_score(reward_inputs)" if batch else "compute_score(reward_input)",
        inputs="reward_inputs" if batch else "[reward_input]",
        result="scores" if batch else "scores[0]",
    )
    (tmp_path / "fateful.py").write_text(reward)
    code, text = train(
        tmp_path,
        f"data.train_files={rows}",
        "data.val_files=''",
        "data.shuffle=false",
        "data.rollout_batch_size=5",
        "worker.actor.global_batch_size=5",
        "worker.rollout.n=2",
        f"worker.reward.reward_function={tmp_path / 'fateful.py'}:compute_score",
        "worker.reward.timeout=1",
        "worker.reward.fallback=-0.5",
        *SHORT,
        "trainer.max_steps=2",
    )
    assert code == 0, text
    for line in steps_of(run_folder(tmp_path)):
        assert line["reward/failed"] == 8
        for failure in ("raised", "timeout", "died", "bad_result"):
            assert line[f"reward/{failure}"] == 2, failure
        assert line["reward/overall"] == pytest.approx((2 * 1.0 + 8 * -0.5) / 10)
    samples = pq.read_table(run_folder(tmp_path) / "samples" / "train_000002.parquet").to_pylist()
    expected = [None, "raised", "timeout", "died", "bad result"]
    assert [row["failure"] for row in samples] == [failure for failure in expected for _ in range(2)]
    assert text.count("ValueError: no score for this one") == (2 if batch else 1)
    assert "rewards failed 8" in text


def test_training_without_validation_data(tmp_path, few_rows):
    code, text = train(tmp_path, few_rows[0], "data.val_files=''", *SHORT)
    assert code == 0, text
    assert [line["step"] for line in settled(run_folder(tmp_path) / "metrics.jsonl")] == [1, 2, 3]


def test_length_comes_from_epochs_without_max_steps(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *SHORT, "trainer.max_steps=null", "trainer.total_epochs=2")
    assert code == 0, text
    steps = steps_of(run_folder(tmp_path))  # 10 rows, 4 a step: two steps an epoch
    assert [(line["train/step"], line["train/epoch"]) for line in steps] == [(1, 0), (2, 0), (3, 1), (4, 1)]
