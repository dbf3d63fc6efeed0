"""Adapters over ranks: the step of one process, and checkpoints that any number of ranks goes on from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn.distributed.gloo import run_ranks
from learn.distributed.lora_programs import resumed, save, train
from learn.distributed.programs import Case
from tiny_models import tiny_llama

from whet.config.schema.model import FSDPConfig

CASES = [
    Case(),
    Case(share=False, tokens=25, recompute=False),
    Case(kl="full"),
    Case(kl="full", fsdp=FSDPConfig(enable_full_shard=False)),
]


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_step_is_that_of_one_process(world: int, tmp_path: Path) -> None:
    expected = train(CASES)
    for results in run_ranks(world, train, tmp_path, CASES):
        for found, one in zip(results, expected, strict=True):
            assert found["metrics"] == pytest.approx(one["metrics"], rel=1e-5, abs=1e-6)
            assert found["trained"] == 28
            assert len(one["gradients"][0]) == 28
            for ours, theirs, name in zip(found["gradients"][0], one["gradients"][0], one["adapters"], strict=True):
                assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm())
                # AdamW makes a step of nearly lr out of a gradient that is nothing but rounding: those are left out.
                meant = theirs.abs() > 1e-4 * theirs.square().mean().sqrt()
                assert meant.float().mean() > 0.9
                moved, expected_move = found["adapters"][name][meant], one["adapters"][name][meant]
                torch.testing.assert_close(moved, expected_move, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(found["values"][0], one["values"][0], rtol=1e-5, atol=1e-5)  # of the reference
            torch.testing.assert_close(found["values"][1], one["values"][1], rtol=0, atol=3e-3)  # after that step
            assert found["merged"].keys() == tiny_llama("whet").state_dict().keys()
            torch.testing.assert_close(found["merged"], dict(one["merged"]), rtol=0, atol=1e-6)
            assert found["samples"] == one["samples"]


@pytest.mark.parametrize(("writers", "readers"), [pytest.param(4, 1, marks=pytest.mark.slow), (2, 1), (1, 2)])
def test_a_checkpoint_goes_on_with_other_ranks(writers: int, readers: int, tmp_path: Path) -> None:
    case, base, folder = Case(), tmp_path / "base", tmp_path / "checkpoint"
    tiny_llama("whet").save_pretrained(base)
    expected = save(folder, case) if writers == 1 else run_ranks(writers, save, tmp_path / "w", folder, case)[0]
    given = (base, folder, case)
    found = resumed(*given) if readers == 1 else run_ranks(readers, resumed, tmp_path / "r", *given)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
