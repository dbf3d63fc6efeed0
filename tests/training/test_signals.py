"""Signals are computed for the estimators that name them, exactly, and leave the run's samples alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama
from whet_process import run_folder, train

from whet.algos.registry import SIGNALS
from whet.config import load_config
from whet.config.schema.actor import ActorConfig
from whet.learn import log_probs
from whet.learn.distributions import sum_pi_squared, sum_pi_squared_all
from whet.model.load import Head
from whet.tracking import read_metrics
from whet.training import signals
from whet.types import Prompt, Sample, Segment

EPISODES = ("worker.rollout.env=single_turn",)
SHORT = ("trainer.max_steps=2", "trainer.val_freq=-1", "trainer.save_freq=-1", "trainer.val_before_train=false")


@pytest.mark.parametrize(
    ("temperature", "softcap", "bias", "scale"), [(1.0, None, False, 1.0), (0.7, 5.0, True, 1.0), (1.0, None, True, 40)]
)
def test_sum_of_squared_probabilities(
    monkeypatch: pytest.MonkeyPatch, temperature: float, softcap: float | None, bias: bool, scale: float
) -> None:
    N, H, V = 37, 8, 23
    monkeypatch.setattr(log_probs, "_CHUNK_ELEMENTS", 16 * V)  # several chunks, the last one short
    g = torch.Generator().manual_seed(3)
    hidden, weight = torch.randn(N, H, generator=g) * scale, torch.randn(V, H, generator=g)
    offset = 100 + torch.randn(V, generator=g) if bias else None  # logits far from 0, where digits are lost
    ours = sum_pi_squared(hidden, Head(weight, offset, softcap), temperature)
    logits = Head(weight, offset, softcap).logits(hidden)  # the same logits; what is tested is what becomes of them
    expected = torch.softmax(logits.double() / temperature, dim=-1).square().sum(dim=-1)
    torch.testing.assert_close(ours.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("max_tokens", [None, 20])
def test_sum_of_squared_probabilities_of_samples(share_prefix: bool, max_tokens: int | None) -> None:
    samples = batch()
    config = ActorConfig(share_prefix=share_prefix, micro_batch_size_per_device_for_experience=5)
    ours = sum_pi_squared_all(tiny_llama("whet"), samples, 0.8, config, max_tokens)
    plain = tiny_llama("eager", torch.float64)
    for row, sample in zip(ours, samples):
        ids = torch.tensor([sample.prompt.ids + sample.ids])
        with torch.no_grad():
            probabilities = torch.softmax(plain(ids).logits[0, len(sample.prompt.ids) - 1 : -1] / 0.8, dim=-1)
        written = len(sample.ids)
        torch.testing.assert_close(row[:written].double(), probabilities.square().sum(dim=-1), atol=1e-6, rtol=0)
        assert torch.all(row[written:] == 0)


def test_every_signal_has_a_provider() -> None:
    elsewhere = {"reference", "process_rewards"}  # log-probs as for KL, and the reward model's update
    assert set(SIGNALS) - elsewhere <= signals._PROVIDERS.keys()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """A run of GRPO, which needs no signal."""
    return _run(tmp_path_factory.mktemp("plain"), few_rows, "grpo")


def _run(folder: Path, few_rows: tuple[str, str], estimator: str, *more: str) -> Path:
    code, text = train(folder, *few_rows, *SHORT, f"algorithm.adv_estimator={estimator}", *more)
    assert code == 0, text
    return run_folder(folder)


def _samples(run: Path, step: int) -> list[dict]:
    return pq.read_table(run / "samples" / f"train_{step:06d}.parquet").to_pylist()


@pytest.mark.parametrize(
    ("estimator", "stage"),
    [
        ("remax", "baseline"),
        ("optimal_token_baseline", "sum_pi_squared"),
        ("tir_optimal_token_baseline", "sum_pi_squared"),
    ],
)
def test_a_run_computes_what_its_estimator_needs(
    tmp_path: Path, few_rows: tuple[str, str], plain: Path, estimator: str, stage: str
) -> None:
    run = _run(tmp_path, few_rows, estimator)
    extra = {"baseline", "sum_pi_squared", "values"}
    for line in read_metrics(run / "metrics.jsonl"):
        assert {name for name in extra if f"timing_s/{name}" in line} == {stage}
    for line in read_metrics(plain / "metrics.jsonl"):
        assert not any(f"timing_s/{name}" in line for name in extra)
    # The first step's samples are those of any other estimator: what was computed besides drew no random numbers.
    assert [row["response"] for row in _samples(run, 1)] == [row["response"] for row in _samples(plain, 1)]


@pytest.mark.parametrize("engine", ["native", "hf"])
def test_the_baseline_is_the_greedy_responses_score(tmp_path: Path, few_rows: tuple[str, str], engine: str) -> None:
    """Validating greedily on the training rows before the first step gives the baselines of that step."""
    rows = few_rows[0].partition("=")[2]
    run = _run(
        tmp_path,
        (few_rows[0], f"data.val_files={rows}"),
        "remax",
        "trainer.val_before_train=true",
        "worker.rollout.val_override_config.n=1",
        "worker.rollout.val_override_config.temperature=0",
        f"worker.rollout.name={engine}",
    )
    greedy = pq.read_table(run / "samples" / "val_000000.parquet").to_pylist()
    scores = {row["prompt"]: row["reward"] for row in greedy}
    assert len(set(scores.values())) > 1
    for row in _samples(run, 1):
        assert row["advantage"] == pytest.approx(row["reward"] - scores[row["prompt"]], abs=1e-6)


@pytest.mark.parametrize("keys", [(), EPISODES, (*EPISODES, "algorithm.rollout_correction=decoupled_token_is")])
def test_episodes_that_are_trained_on_later_keep_the_log_probs_of_the_learner(keys: tuple[str, ...]) -> None:
    """Which turns were decoded together depends on time; what a later step reads must not."""
    prompt = Prompt("rows:1", [1, 2], "text")
    turns = [Segment([3, 4], log_probs=[-1.0, -2.0], version=7), Segment([5], by_model=False), Segment([6])]
    turns[2].log_probs, turns[2].version = [-3.0], 6  # before the latest update
    sample = Sample(prompt, turns, "stop")
    learner = SimpleNamespace(log_probs=lambda samples: torch.tensor([[-0.5, -0.25, 0.0, -0.125]]))
    engine = SimpleNamespace(version=7, capabilities=SimpleNamespace(exact_log_probs=True))
    models = SimpleNamespace(learner=learner, engine=engine)
    inputs = signals.SignalInputs(load_config(list(keys)), models, None, None)  # type: ignore[arg-type]
    signals.settle_log_probs(inputs, [sample])
    assert sample.log_probs == ([-0.5, -0.25, 0.0, -3.0] if keys == EPISODES else [-1.0, -2.0, 0.0, -3.0])
