"""Whole runs with a reward model and with judges: what is learned, what is asked twice, what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from judge_server import blocks, serving
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification, LlamaForTokenClassification
from whet_process import run_folder, settled, train

from whet.config.examples import examples_folder

FUNCTION = f"{examples_folder()}/reward_function/quickstart.py:compute_score"
NO_FUNCTION = "worker.reward.reward_function=null"


def reward_folder(quickstart: Path, folder: Path, kind: Any) -> str:
    """A random reward model that reads the quickstart's tokens."""
    tokenizer = AutoTokenizer.from_pretrained(quickstart / "model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=1,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_token_id,
    )
    kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def metrics(folder: Path, name: str) -> list[float]:
    return [line[name] for line in settled(run_folder(folder) / "metrics.jsonl") if name in line]


def test_a_run_raises_what_a_reward_model_scores(tmp_path, few_rows, quickstart):
    model = reward_folder(quickstart, tmp_path / "model", LlamaForSequenceClassification)
    steps = ("trainer.max_steps=14", "data.rollout_batch_size=8", "worker.actor.global_batch_size=8")
    code, text = train(
        tmp_path, *few_rows, NO_FUNCTION, f"worker.reward.model.path={model}", *steps, "worker.rollout.n=8"
    )
    assert code == 0, text
    rewards = metrics(tmp_path, "reward/model")
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    assert metrics(tmp_path, "reward/failed")[-1] == 0


def test_step_rewards_are_trained_on(tmp_path, few_rows, quickstart):
    model = reward_folder(quickstart, tmp_path / "model", LlamaForTokenClassification)
    code, text = train(
        tmp_path,
        *few_rows,
        f"worker.reward.model.path={model}",
        'worker.reward.model.steps.separator=" "',
        f"worker.reward.combine={{{FUNCTION}: 1.0, model: 0.1}}",
        NO_FUNCTION,
        "algorithm.adv_estimator=reinforce_plus_plus",
        "trainer.max_steps=2",
    )
    assert code == 0, text
    assert metrics(tmp_path, "reward/model_steps")[-1] > 1
    assert "reward/total" in settled(run_folder(tmp_path) / "metrics.jsonl")[-1]


def count_sevens(question: str) -> str:
    (text,) = blocks(question)
    return f"It has {text.count('7')} sevens.\nScore: {min(10, text.count('7'))}"


def test_a_run_that_resumes_asks_a_judge_nothing_twice(tmp_path, few_rows):
    with serving(count_sevens) as server:
        settings = (
            NO_FUNCTION,
            f"worker.reward.judge.base_url={server.url}",
            "worker.reward.judge.concurrency=4",
            "trainer.save_freq=4",
        )
        code, text = train(tmp_path, *few_rows, *settings, "trainer.max_steps=4")
        assert code == 0, text
        first, once = len(server.asked), server_questions(server)
        run = run_folder(tmp_path)
        for checkpoint in run.glob("global_step_*"):  # the run was killed before it saved
            checkpoint.rename(tmp_path / checkpoint.name)
        code, text = train(tmp_path, *few_rows, *settings, "trainer.max_steps=4")
        assert code == 0, text
    assert len(once) == first
    assert len(server.asked) == first
    table = pq.read_table(run / "samples" / "train_000001.parquet")
    notes = table.column("note/judge").to_pylist()
    assert all(note.startswith("It has") for note in notes)
    assert table.column("score/judge").to_pylist() == [int(note.split()[2]) / 10 for note in notes]


def server_questions(server: Any) -> set[str]:
    return {body["messages"][-1]["content"] for body in server.asked}


def test_a_judge_on_the_native_engine(tmp_path, few_rows, quickstart):
    rubric = tmp_path / "rubric.jinja"
    rubric.write_text("Sort these digits: {{ raw_response | replace('Answer:', '') | trim }}\nBegin with \"Answer:\"")
    code, text = train(
        tmp_path,
        *few_rows,
        NO_FUNCTION,
        "worker.reward.judge.model_path=whet/quickstart",
        "worker.reward.judge.system=Sort.",
        f"worker.reward.judge.rubric={rubric}",
        "worker.reward.judge.pattern='Answer: (\\d)'",
        "worker.reward.judge.high=9",
        "worker.reward.judge.max_tokens=16",
        "trainer.max_steps=2",
    )
    assert code == 0, text
    table = pq.read_table(run_folder(tmp_path) / "samples" / "train_000001.parquet")
    rows = table.select(["response", "note/judge", "score/judge", "failure"]).to_pylist()
    judged = [row for row in rows if row["failure"] is None]
    assert len(judged) > len(rows) // 2
    for row in judged:
        assert row["note/judge"].startswith("Answer: ")
        assert row["score/judge"] == pytest.approx(int(row["note/judge"].split()[1]) / 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("worker.reward.model.path=nowhere",), "there is no such model folder"),
        (("worker.reward.model.path=whet/quickstart",), "which is no reward model"),
        (("worker.reward.judge.base_url=http://127.0.0.1:9/v1", "worker.reward.judge.retries=0"), "cannot be reached"),
    ],
)
def test_what_cannot_be_is_said_before_training(tmp_path, few_rows, arguments, message):
    code, text = train(tmp_path, *few_rows, NO_FUNCTION, *arguments)
    assert code == 2
    assert message in " ".join(text.split()), text
    assert "Traceback" not in text
