"""Batches under filters: refilled, carried over, resumed to the bit, and what happens when nothing is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import SMALL, outcome, run_folder, settled, start, train

from whet.tracking import read_metrics

QUIET = ("trainer.val_freq=-1", "trainer.val_before_train=false")
DAPO = (
    "algorithm.filter_groups.enable=true",
    "algorithm.filter_groups.metric=acc",
    "data.mini_rollout_batch_size=3",
)
RECIPES: dict[str, tuple[str, ...]] = {
    "dapo": (
        *DAPO,
        "worker.reward.overlong_buffer.enable=true",
        "worker.reward.overlong_buffer.len=8",
        "worker.actor.clip_ratio_high=0.28",
    ),
    "online": ("algorithm.online_filtering=true", "algorithm.filter_key=accuracy", "worker.actor.ppo_epochs=2"),
    "or1": (
        "trainer.rejection_sample=true",
        "trainer.rejection_sample_multiplier=2",
        "worker.actor.adaptive_entropy.enabled=true",
        "worker.actor.adaptive_entropy.target_entropy=9",
    ),
    "pf_ppo": ("algorithm.use_pf_ppo=true", "worker.actor.global_batch_size=2"),
    "adaptive kl": (
        "algorithm.disable_kl=false",
        "algorithm.kl_type=adaptive",
        "algorithm.kl_coef=0.1",
        "algorithm.kl_horizon=100",
    ),
}


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [line for line in settled(run_folder(folder) / "metrics.jsonl") if line["step"] > 0]


def rows_of(folder: Path, step: int) -> list[dict[str, Any]]:
    return pq.read_table(run_folder(folder) / "samples" / f"train_{step:06d}.parquet").to_pylist()


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains(tmp_path, few_rows, name):
    code, text = train(tmp_path, *few_rows, *QUIET, *RECIPES[name], "trainer.max_steps=3")
    assert code == 0, text
    steps = steps_of(tmp_path)
    assert [line["step"] for line in steps] == [1, 2, 3]
    for line in steps:
        assert all(value is not None and math.isfinite(value) for value in line.values())
    assert any(line.get("actor/grad_norm", 0) > 0 for line in steps)
    if name == "dapo":
        assert all("reward/overlong_reward" in line for line in steps if line["batch/draws"])
    if name == "or1":
        assert [line["actor/entropy_coef"] for line in steps] == pytest.approx([0, 0.001, 0.002])
    if name == "pf_ppo":
        assert all(0 < line["batch/resampled_distinct"] < 1 for line in steps)
    if name == "adaptive kl":
        first, second, third = (line["actor/kl_coef"] for line in steps)
        assert first == 0.1
        assert second == pytest.approx(0.1 * (1 - 0.2 * 16 / 100))  # the policy was still the reference
        assert third != second


def test_dropped_groups_are_refilled_and_surplus_is_carried(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *QUIET, *DAPO, "trainer.log_token_log_probs=true")
    assert code == 0, text
    waiting = 0
    for line in steps_of(tmp_path):
        rows = rows_of(tmp_path, line["step"])
        groups = [rows[i : i + 4] for i in range(0, len(rows), 4)]
        trained = [group for group in groups if not group[0]["dropped"]]
        dropped = [group for group in groups if group[0]["dropped"]]
        assert len(trained) == line["batch/groups"] == 4
        for group in trained:
            assert len({row["score/accuracy"] for row in group}) > 1
        for group in dropped:
            assert len({row["score/accuracy"] for row in group}) == 1
            assert all(row["advantage"] == 0 for row in group)
        stale = sum(group[0]["version"] < line["step"] - 1 for group in trained)
        assert stale == line["batch/stale_groups"] == min(waiting, 4)
        drawn = line["batch/draws"] * 3
        assert len(trained) - stale + len(dropped) + line["batch/carried"] - (waiting - stale) == drawn
        if drawn:
            assert line["batch/kept_ratio"] == pytest.approx(1 - len(dropped) / drawn)
        waiting = line["batch/carried"]
    assert any(line["batch/stale_groups"] for line in steps_of(tmp_path))
    assert any(line["batch/draws"] > 2 for line in steps_of(tmp_path))


def test_samplers_log_probs_are_compared_for_fresh_samples_only(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *QUIET, *DAPO, "worker.actor.ppo_epochs=2")
    assert code == 0, text
    steps = steps_of(tmp_path)
    assert any(line["batch/stale_groups"] for line in steps)
    assert all(line.get("rollout/log_prob_diff_max", 0) < 1e-4 for line in steps)


# Everything that a step leaves to the next at once.
KEEPING = (
    *DAPO,
    "data.mini_rollout_batch_size=7",
    "worker.actor.global_batch_size=2",
    "algorithm.use_pf_ppo=true",
    "algorithm.disable_kl=false",
    "algorithm.kl_type=adaptive",
    "algorithm.kl_coef=0.1",
    "algorithm.kl_horizon=100",
    "worker.actor.adaptive_entropy.enabled=true",
    "worker.actor.adaptive_entropy.target_entropy=0.4",
    "trainer.save_freq=1",
    *QUIET,
)


@pytest.mark.slow
def test_a_killed_run_goes_on_with_what_it_carried(tmp_path, few_rows):
    code, text = train(tmp_path / "alone", *few_rows, *KEEPING)
    assert code == 0, text
    alone = run_folder(tmp_path / "alone")
    assert any((folder / "carried.json").exists() for folder in alone.glob("global_step_*"))
    killed = run_folder(tmp_path / "killed")
    for step in (1, 2, 4):
        process = start(tmp_path / "killed", "train", *SMALL, *few_rows, *KEEPING)
        assert process.wait_for(lambda step=step: (killed / f"global_step_{step}").exists()), process.text()
        process.kill()
    code, text = train(tmp_path / "killed", *few_rows, *KEEPING)
    assert code == 0, text
    assert outcome(killed, 6) == outcome(alone, 6)
    assert "warning" not in text


def test_a_checkpoint_names_carried_prompts_by_their_rows(tmp_path, few_rows):
    every = ("algorithm.online_filtering=true", "algorithm.filter_low=-1", "algorithm.filter_high=2")
    code, text = train(tmp_path, *few_rows, *QUIET, *every, "data.mini_rollout_batch_size=9", "trainer.max_steps=1")
    assert code == 0, text
    carried = json.loads((run_folder(tmp_path) / "global_step_1" / "carried.json").read_text())
    assert len(carried) == steps_of(tmp_path)[0]["batch/carried"] == 5
    for group in carried:
        assert 0 <= group["row"] < 10
        assert [sample["index"] for sample in group["samples"]] == [0, 1, 2, 3]
        assert all("prompt" not in sample for sample in group["samples"])
        assert all(segment["version"] == 0 for sample in group["samples"] for segment in sample["segments"])


def test_too_few_groups_are_trained_on_with_a_warning(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *QUIET, *DAPO, "algorithm.filter_groups.max_num_gen_batches=2")
    assert code == 0, text
    short = [line for line in steps_of(tmp_path) if 0 < line["batch/groups"] < 4]
    assert short
    assert all(line["actor/grad_norm"] > 0 and line["batch/draws"] == 2 for line in short)
    assert f"kept {short[0]['batch/groups']:.0f} of the 4 groups wanted in 2 draws; training on those" in text


NOTHING = ("algorithm.online_filtering=true", "algorithm.filter_low=2", "algorithm.filter_high=3")


def test_nothing_kept_is_a_warning_and_no_update(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *QUIET, *NOTHING, "trainer.max_try_make_batch=1", "trainer.max_steps=2")
    assert code == 0, text
    assert text.count("algorithm.online_filtering kept none of 4 groups in 1 draws; this step trains on nothing") == 2
    for line in steps_of(tmp_path):
        assert line["batch/empty_steps"] == line["step"]
        assert "actor/grad_norm" not in line
        assert line["reward/overall"] > 0
        assert all(row["dropped"] and row["version"] == 0 for row in rows_of(tmp_path, line["step"]))


def test_nothing_kept_for_too_long_stops_the_run_and_says_what_to_do(tmp_path, few_rows):
    few = ("trainer.max_try_make_batch=1", "trainer.max_empty_steps=3", "trainer.save_freq=1")
    code, text = train(tmp_path, *few_rows, *QUIET, *NOTHING, *few, "trainer.max_steps=2")
    assert code == 0, text
    code, text = train(tmp_path, *few_rows, *QUIET, *NOTHING, *few)  # the count goes on where it was
    assert code == 2
    assert "algorithm.online_filtering kept none of the groups sampled in 3 steps in a row" in text
    assert "Traceback" not in text
    assert [line["step"] for line in read_metrics(run_folder(tmp_path) / "metrics.jsonl")] == [1, 2]


def test_rejection_without_refill_trains_on_what_is_left(tmp_path, few_rows):
    reward = tmp_path / "binary.py"
    reward.write_text("def main(reward_input):\n    return float(reward_input['response'].split()[-1:] != ['9'])\n")
    code, text = train(
        tmp_path,
        *few_rows,
        *QUIET,
        f"worker.reward.reward_function={reward}",
        "trainer.rejection_sample=true",
        "trainer.max_empty_steps=100",
    )
    assert code == 0, text
    steps = steps_of(tmp_path)
    assert any(line["batch/groups"] < 4 for line in steps)
    for line in steps:
        rows = rows_of(tmp_path, line["step"])
        groups = [rows[i : i + 4] for i in range(0, len(rows), 4)]
        assert line["batch/draws"] == 1
        assert len(groups) == 4
        assert sum(not group[0]["dropped"] for group in groups) == line["batch/groups"]
        for group in groups:
            assert group[0]["dropped"] == ({row["reward"] for row in group} in ({0.0}, {1.0}))
