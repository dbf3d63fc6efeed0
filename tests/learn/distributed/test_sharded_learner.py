"""A learner sharded over ranks computes what one process computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learn.distributed.alike import assert_close, assert_same_steps
from learn.distributed.gloo import run_ranks
from learn.distributed.programs import (
    Case,
    bad_loss,
    bad_mesh,
    bf16_step,
    criticise,
    kahan,
    learner_of,
    narrow_passes,
    sampled,
    train,
    twins,
)
from learn.samples import batch
from tiny_models import tiny_llama

from whet.config.schema.model import FSDPConfig
from whet.types import Prompt

pytestmark = pytest.mark.early

CASES = [
    Case(),
    Case(tokens=None, size=1, tied=False),
    Case(share=False, tokens=25, recompute=False, mini_batch=5),
    Case(share=False, tokens=None, size=5, mini_batch=2, tied=False),  # two samples for four ranks
    Case(kl="full", mini_batch=7),
    Case(fsdp=FSDPConfig(enable_full_shard=False)),
    Case(fsdp=FSDPConfig(enable_cpu_offload=True)),
]
HSDP = [replace(CASES[0], fsdp=FSDPConfig(fsdp_size=2)), replace(CASES[3], fsdp=FSDPConfig(fsdp_size=2))]


@pytest.mark.parametrize(
    ("world", "cases"),
    [
        pytest.param(1, CASES[:2], id="1", marks=pytest.mark.slow),
        pytest.param(2, CASES, id="2"),
        pytest.param(4, [CASES[0], CASES[3], HSDP[0]], id="4"),
        pytest.param(4, CASES[1:3] + CASES[4:] + HSDP[1:], id="4-others", marks=pytest.mark.slow),
    ],
)
def test_a_step_is_that_of_one_process(world: int, cases: list[Case], tmp_path: Path) -> None:
    expected = train(cases)
    assert_same_steps(run_ranks(world, train, tmp_path, cases), expected)


def test_kahan_sums_of_shards_are_those_of_the_whole(tmp_path: Path) -> None:
    for found in run_ranks(2, kahan, tmp_path, 4):
        for ours, theirs in zip(found, kahan(4), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


def test_ranks_sample_on_their_own_from_whole_weights(tmp_path: Path) -> None:
    prompts = [[Prompt("a", [3, 4, 5], "")], [Prompt("b", [6, 7], ""), Prompt("c", [8], "")]]
    found = run_ranks(2, sampled, tmp_path, prompts)
    for rank, (samples, sharded, _) in enumerate(found):
        expected = sampled([prompts[rank]])[0]
        assert [ids for ids, _ in samples] == [ids for ids, _ in expected]
        for (_, ours), (_, theirs) in zip(samples, expected, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
        assert all(sharded)
    weights = sampled([[]])[2]
    for name, weight in found[0][2].items():
        assert_close(weight, weights[name], 1e-4)


@pytest.mark.parametrize("broken", [0, 11])
def test_all_ranks_skip_an_update_that_is_not_finite_on_one(broken: int, tmp_path: Path) -> None:
    for metrics, unchanged in run_ranks(2, bad_loss, tmp_path, broken):
        assert metrics["actor/grad_skipped"] == 1
        assert metrics["actor/rows"] == 12
        assert "actor/grad_norm" not in metrics
        assert unchanged


def test_a_sharded_critic_is_that_of_one_process(tmp_path: Path) -> None:
    before, metrics, after = criticise(5)
    for found in run_ranks(2, criticise, tmp_path, 5):
        torch.testing.assert_close(found[0], before, rtol=1e-5, atol=1e-5)
        assert found[1] == pytest.approx(metrics, rel=1e-4)
        torch.testing.assert_close(found[2], after, rtol=1e-3, atol=1e-3)


def test_passes_may_be_narrower_than_the_weights(tmp_path: Path) -> None:
    with torch.no_grad():
        expected = learner_of(tiny_llama("whet"), Case()).log_probs(batch())
    for log_probs, metrics, inside, outside in run_ranks(2, narrow_passes, tmp_path):
        assert inside == {torch.bfloat16}
        assert outside == {torch.float32}
        assert metrics["actor/grad_skipped"] == 0
        difference = (log_probs - expected).abs().max()
        assert 0 < difference < 0.3


def test_a_group_of_another_size_must_divide_the_ranks(tmp_path: Path) -> None:
    for said in run_ranks(2, bad_mesh, tmp_path, 3):
        assert "worker.actor.fsdp.fsdp_size=3" in said
        assert "1, 2" in said


def test_bf16_weights_train_as_in_one_process(tmp_path: Path) -> None:
    before, after, norm, dtypes = bf16_step()
    assert (after - before).abs().max() > 0.1
    for found in run_ranks(2, bf16_step, tmp_path):
        torch.testing.assert_close(found[0], before, rtol=0.05, atol=0.05)
        assert float((found[1] - after).norm()) < 0.1 * float((after - before).norm())
        assert found[2] == pytest.approx(norm, rel=0.02)
        assert found[3] == dtypes


def test_ranks_that_compute_the_same_share_count_once(tmp_path: Path) -> None:
    (one,) = train([Case()])
    found = run_ranks(4, twins, tmp_path, Case())
    assert [first for *_, first in found] == [True, False, False, False]
    for metrics, log_probs, weights, _ in found:
        assert metrics == pytest.approx(one["metrics"], rel=1e-5, abs=1e-6)
        torch.testing.assert_close(log_probs, one["values"][0], rtol=1e-4, atol=1e-4)
        for name, weight in weights.items():
            assert_close(weight, one["weights"][name], 1e-4)
