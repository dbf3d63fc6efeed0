"""A checkpoint written by some ranks is read by another number of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learn.distributed.checkpoint_programs import (
    copy,
    for_engines,
    no_such_weights,
    read_critic,
    resumed,
    save,
    save_critic,
)
from learn.distributed.gloo import run_ranks
from learn.distributed.programs import Case
from safetensors.torch import load_file
from tiny_models import tiny_llama

from whet.config.schema.model import FSDPConfig

FP32 = Case()
BF16 = Case(strategy="adamw_bf16", dtype=torch.bfloat16)


def _same_files(one: Path, other: Path) -> None:
    """Weights and optimizer state are the same bits, and the weights stand under the same names."""
    ours, theirs = (load_file(path / "huggingface" / "model.safetensors") for path in (one, other))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    a, b = (torch.load(path / "optimizer.pt", weights_only=True) for path in (one, other))
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for index, state in a["state"].items():
        assert state.keys() == b["state"][index].keys()
        for name, value in state.items():
            assert torch.equal(value, b["state"][index][name])
            assert value.dtype == b["state"][index][name].dtype


@pytest.mark.parametrize("case", [FP32, pytest.param(BF16, marks=pytest.mark.slow)], ids=["fp32", "bf16"])
def test_files_are_those_of_one_process_whoever_writes_them(case: Case, tmp_path: Path) -> None:
    with torch.backends.mkldnn.flags(enabled=False):  # some CPUs promise bf16 products that they do not have
        save(tmp_path / "one", case)
    groups, readers = FSDPConfig(fsdp_size=2), FSDPConfig(enable_rank0_init=False)
    run_ranks(4, copy, tmp_path / "4", tmp_path / "one", tmp_path / "four", replace(case, fsdp=groups))
    run_ranks(2, copy, tmp_path / "2", tmp_path / "four", tmp_path / "two", replace(case, fsdp=readers))
    run_ranks(4, copy, tmp_path / "c", tmp_path / "two", tmp_path / "cut", replace(case, tensor=2))
    copy(tmp_path / "cut", tmp_path / "again", case)
    for name in ("four", "two", "cut", "again"):
        _same_files(tmp_path / name, tmp_path / "one")
    configs = {(tmp_path / name / "huggingface" / "config.json").read_text() for name in ("one", "four", "two")}
    assert len(configs) == 1


@pytest.mark.parametrize("before", [pytest.param(4, marks=pytest.mark.slow), 2, 1])
def test_a_run_goes_on_with_more_or_fewer_ranks(before: int, tmp_path: Path) -> None:
    written = tmp_path / "written"
    expected = save(written, FP32) if before == 1 else run_ranks(before, save, tmp_path / "a", written, FP32)[0]
    found = [run_ranks(2, resumed, tmp_path / "b", written, FP32)[0]] if before != 2 else []
    if before != 1:
        found.append(resumed(written, FP32))
    for weights in found:
        assert weights.keys() == expected.keys()
        for name, weight in weights.items():
            assert float((weight - expected[name]).norm()) <= 1e-4 * float(expected[name].norm())


def test_what_the_first_rank_cannot_read_is_said_on_all(tmp_path: Path) -> None:
    tiny_llama("whet").save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"no weights")
    said = run_ranks(2, no_such_weights, tmp_path / "ranks", str(tmp_path / "model"))
    assert said[0] == said[1]
    assert "worker.actor.model.model_path" in said[0]


def test_a_critic_goes_on_with_more_or_fewer_ranks(tmp_path: Path) -> None:
    expected = run_ranks(2, save_critic, tmp_path / "2", tmp_path / "written")
    found = [read_critic(tmp_path / "written"), *run_ranks(3, read_critic, tmp_path / "3", tmp_path / "written")]
    for values in found:
        assert values.abs().max() > 0
        torch.testing.assert_close(values, expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_engines_are_given_whole_weights(tied: bool, tmp_path: Path) -> None:
    expected = for_engines(tied)
    for found in run_ranks(2, for_engines, tmp_path, tied):
        assert list(found) == list(expected)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
