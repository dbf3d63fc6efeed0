"""Validation: avg@k and pass@k against brute force and against the samples themselves; validating only."""

from __future__ import annotations

import statistics
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from whet_process import run_folder, settled, train

from whet.training.rollouts import pass_at_k, summarise
from whet.types import Prompt, Sample

VALIDATE_FOUR = ("worker.rollout.val_override_config.n=4", "worker.rollout.val_override_config.temperature=0.8")


def scored(uid: str, **scores: float) -> Sample:
    return Sample.written(Prompt(uid, [1], ""), [1, 2], [0.0, 0.0], "stop", scores=scores)


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_choices_with_a_correct_one(n):
    for correct in range(n + 1):
        samples = [True] * correct + [False] * (n - correct)
        for k in range(1, n + 1):
            choices = list(combinations(samples, k))
            assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_summary_by_hand():
    first = [scored("a", overall=0.9, accuracy=right) for right in (1.0, 0.0, 0.0)]
    second = [scored("b", overall=0.3, accuracy=0.0) for _ in range(3)]
    metrics = summarise([*first, *second], 3)
    assert metrics["val/reward"] == pytest.approx(0.6)
    for name in ("accuracy", "avg@3", "pass@1"):
        assert metrics[f"val/{name}"] == pytest.approx(1 / 6)
    assert metrics["val/pass@2"] == pytest.approx((2 / 3) / 2)
    assert metrics["val/pass@3"] == pytest.approx(1 / 2)
    assert "val/overall" not in metrics


def test_summary_of_a_reward_without_accuracy():
    metrics = summarise([scored("a", overall=1.0), scored("a", overall=0.5)], 2)
    assert metrics["val/avg@2"] == pytest.approx(0.75)
    assert metrics["val/pass@2"] == 1.0
    assert summarise([scored("a", overall=1.0, acc=0.0)], 1)["val/accuracy"] == 0.0


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """The folder of a run with four validation samples a prompt, in batches that leave a short one at the end."""
    folder = tmp_path_factory.mktemp("validated")
    code, text = train(folder, *few_rows, *VALIDATE_FOUR, "data.val_batch_size=4", "trainer.max_steps=3")
    assert code == 0, text
    return folder


def test_metrics_are_those_of_the_samples(validated):
    run = run_folder(validated)
    lines = [line for line in settled(run / "metrics.jsonl") if "val/reward" in line]
    assert [line["step"] for line in lines] == [0, 3]
    for line in lines:
        rows = pq.read_table(run / "samples" / f"val_{line['step']:06d}.parquet").to_pylist()
        assert len(rows) == 24
        by_prompt: dict[str, list[float]] = {}
        for row in rows:
            by_prompt.setdefault(row["uid"], []).append(row["score/accuracy"])
        assert len(by_prompt) == 6
        for k in (1, 2, 4):
            each = [statistics.mean(map(max, combinations(scores, k))) for scores in by_prompt.values()]
            assert line[f"val/pass@{k}"] == pytest.approx(statistics.mean(each))
        assert line["val/avg@4"] == pytest.approx(statistics.mean(map(statistics.mean, by_prompt.values())))
        assert line["val/reward"] == pytest.approx(statistics.mean(row["reward"] for row in rows))
        assert line["val/response_length_mean"] == pytest.approx(statistics.mean(row["length"] for row in rows))


def test_batch_size_does_not_change_what_is_sampled(validated, tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *VALIDATE_FOUR, "trainer.val_only=true")
    assert code == 0, text
    whole, parts = (pq.read_table(run_folder(at) / "samples" / "val_000000.parquet") for at in (tmp_path, validated))
    assert whole["response"] == parts["response"]


def test_only_validating_the_first_weights(validated, tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *VALIDATE_FOUR, "trainer.val_only=true", "data.train_files=''")
    assert code == 0, text
    assert settled(run_folder(tmp_path) / "metrics.jsonl") == settled(run_folder(validated) / "metrics.jsonl")[:1]
    assert not list(run_folder(tmp_path).glob("global_step_*"))
    assert str(run_folder(tmp_path)) in text


def test_only_validating_a_checkpoint(validated, tmp_path, few_rows):
    more = (f"trainer.load_checkpoint_path={run_folder(validated)}", "trainer.val_only=true")
    code, text = train(tmp_path, *few_rows, *VALIDATE_FOUR, *more)
    assert code == 0, text
    (line,) = settled(run_folder(tmp_path) / "metrics.jsonl")
    trained = settled(run_folder(validated) / "metrics.jsonl")[-1]
    assert line["step"] == 3
    assert line == {name: trained[name] for name in line}


def test_greedy_validation_takes_the_likeliest_reply(tmp_path, few_rows):
    greedy = ("worker.rollout.val_override_config.n=2", "worker.rollout.val_override_config.temperature=0")
    code, text = train(tmp_path, *few_rows, *greedy, "trainer.val_only=true")
    assert code == 0, text
    rows = pq.read_table(run_folder(tmp_path) / "samples" / "val_000000.parquet").to_pylist()
    assert all(a["response"] == b["response"] for a, b in zip(rows[::2], rows[1::2]))
