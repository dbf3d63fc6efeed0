"""Rows cut over ranks compute what one process computes, wherever the cut falls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn.distributed import lora_programs
from learn.distributed.alike import assert_close, assert_same_steps
from learn.distributed.gloo import run_ranks
from learn.distributed.programs import Case, criticise, train

from whet.config.schema.model import FSDPConfig

CASES = [
    Case(sequence=2),
    Case(sequence=2, tokens=None, size=1, kl="full", mini_batch=7),  # a rank may have nothing that is predicted
    Case(sequence=2, family="qwen3", share=False, tokens=25, recompute=False, mini_batch=5),
]
OTHERS = [
    Case(sequence=2, family="gemma3"),  # windows
    Case(sequence=2, family="qwen3_moe"),
    Case(sequence=2, share=False, tokens=None, size=5, mini_batch=2, tied=False),
    Case(sequence=4, family="qwen2"),  # fewer key-value heads than ranks
    Case(sequence=2, tensor=2, family="mixtral"),
    Case(sequence=2, fsdp=FSDPConfig(fsdp_size=2)),
]


@pytest.mark.parametrize(
    ("world", "cases"),
    [
        pytest.param(2, CASES, id="2"),
        pytest.param(4, [CASES[0], OTHERS[3], OTHERS[4]], id="4", marks=pytest.mark.slow),
        pytest.param(4, CASES[1:] + OTHERS[:3] + OTHERS[5:], id="4-others", marks=pytest.mark.slow),
    ],
)
def test_a_step_is_that_of_one_process(world: int, cases: list[Case], tmp_path: Path) -> None:
    assert_same_steps(run_ranks(world, train, tmp_path, cases), train(cases))


def test_adapters_learn_from_all_tokens(tmp_path: Path) -> None:
    cases = [Case(sequence=2)]
    (one,) = lora_programs.train(cases)
    for (found,) in run_ranks(2, lora_programs.train, tmp_path, cases):
        assert found["metrics"] == pytest.approx(one["metrics"], rel=1e-5, abs=1e-6)
        for ours, theirs in zip(found["gradients"][0], one["gradients"][0], strict=True):
            assert_close(ours, theirs)
        assert found["samples"] == one["samples"]


def test_a_critic_of_cut_rows_is_that_of_one_process(tmp_path: Path) -> None:
    before, metrics, after = criticise(5)
    for found in run_ranks(2, criticise, tmp_path, 5, 2):
        torch.testing.assert_close(found[0], before, rtol=1e-5, atol=1e-5)
        assert found[1] == pytest.approx(metrics, rel=1e-4)
        torch.testing.assert_close(found[2], after, rtol=1e-3, atol=1e-3)
