"""Layers cut over ranks compute what one process computes, whatever else is divided."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn.distributed import lora_programs
from learn.distributed.alike import assert_close, assert_same_steps
from learn.distributed.checkpoint_programs import copy, for_engines, resumed, save
from learn.distributed.gloo import run_ranks
from learn.distributed.programs import Case, sampled, train
from tiny_models import tiny_config, tiny_llama, tiny_model
from transformers import Phi3Config

from whet.config.schema.model import FSDPConfig
from whet.errors import UserError
from whet.learn.layout import check_sizes
from whet.types import Prompt

pytestmark = pytest.mark.early

GROUPS = FSDPConfig(fsdp_size=1)  # two ranks of the same place in a layer hold the same (HSDP)
CASES = [
    Case(tensor=2),
    Case(tensor=2, family="qwen3", share=False, tokens=25, recompute=False, mini_batch=5),
    Case(tensor=2, family="mixtral", tokens=None, size=1),  # so few tokens that a rank's experts get none
]
OTHERS = [
    Case(tensor=2, family="qwen2", kl="full", mini_batch=7),
    Case(tensor=2, family="gemma3", tied=False),
    Case(tensor=2, family="qwen3_moe", recompute=False),
    Case(tensor=2, fsdp=FSDPConfig(enable_full_shard=False)),
    Case(tensor=2, fsdp=FSDPConfig(enable_cpu_offload=True)),
]


@pytest.mark.parametrize(
    ("world", "cases"),
    [
        pytest.param(2, CASES[:2], id="2"),
        pytest.param(2, CASES[2:], id="2-more", marks=pytest.mark.slow),
        pytest.param(4, [CASES[0], CASES[2]], id="2x2", marks=pytest.mark.slow),  # the checkpoint below is trained so
        pytest.param(2, OTHERS, id="2-others", marks=pytest.mark.slow),
        pytest.param(4, [CASES[1], *OTHERS, Case(tensor=2, fsdp=GROUPS)], id="2x2-others", marks=pytest.mark.slow),
    ],
)
def test_a_step_is_that_of_one_process(world: int, cases: list[Case], tmp_path: Path) -> None:
    assert_same_steps(run_ranks(world, train, tmp_path, cases), train(cases))


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_adapters_are_cut_as_what_they_adapt(world: int, tmp_path: Path) -> None:
    cases = [Case(tensor=2), Case(tensor=2, family="qwen2", kl="full")]
    expected = lora_programs.train(cases)
    for results in run_ranks(world, lora_programs.train, tmp_path, cases):
        for found, one in zip(results, expected, strict=True):
            assert found["metrics"] == pytest.approx(one["metrics"], rel=1e-5, abs=1e-6)
            for ours, theirs in zip(found["gradients"][0], one["gradients"][0], strict=True):
                assert_close(ours, theirs)
            torch.testing.assert_close(found["values"][0], one["values"][0], rtol=1e-5, atol=1e-5)  # of the reference
            assert found["merged"].keys() == one["merged"].keys()
            for name, weight in found["merged"].items():
                assert_close(weight, one["merged"][name], 1e-3)
            assert found["samples"] == one["samples"]


def test_ranks_sample_on_their_own_from_whole_weights(tmp_path: Path) -> None:
    prompts = [[Prompt("a", [3, 4, 5], "")], [Prompt("b", [6, 7], ""), Prompt("c", [8], "")]]
    case = Case(tensor=2, family="mixtral")
    for rank, (samples, sharded, _) in enumerate(run_ranks(2, sampled, tmp_path, prompts, case)):
        expected = sampled([prompts[rank]], case)[0]
        assert [ids for ids, _ in samples] == [ids for ids, _ in expected]
        for (_, ours), (_, theirs) in zip(samples, expected, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
        assert all(sharded)


@pytest.mark.parametrize("family", ["qwen2", pytest.param("qwen3_moe", marks=pytest.mark.slow)])
def test_a_checkpoint_is_that_of_one_process(family: str, tmp_path: Path) -> None:
    case, alone = Case(family=family, tensor=2), Case(family=family)
    expected = run_ranks(4, save, tmp_path / "4", tmp_path / "checkpoint", case)[0]
    torch.testing.assert_close(resumed(tmp_path / "checkpoint", alone), expected, rtol=1e-4, atol=1e-4)
    run_ranks(2, copy, tmp_path / "2", tmp_path / "checkpoint", tmp_path / "again", case)
    weights = (tmp_path / name / "huggingface" / "model.safetensors" for name in ("checkpoint", "again"))
    assert len({path.read_bytes() for path in weights}) == 1
    states = [torch.load(tmp_path / name / "optimizer.pt", weights_only=True) for name in ("checkpoint", "again")]
    torch.testing.assert_close(states[0]["state"], states[1]["state"], rtol=0, atol=0)


def test_other_engines_get_whole_weights(tmp_path: Path) -> None:
    (found, other) = run_ranks(2, for_engines, tmp_path, True, 2)
    expected = for_engines(True)
    assert found.keys() == other.keys() == expected.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


@pytest.mark.parametrize(
    ("tensor", "sequence", "family", "said"),
    [
        (3, 1, "llama", ["tensor_parallel_size=3", "4 attention heads", "1, 2"]),
        (4, 1, "llama", ["tensor_parallel_size=4", "2 key-value heads", "1, 2"]),
        (1, 3, "llama", ["ulysses_size=3", "4 attention heads and 2 key-value heads", "1, 2, 4"]),
        (2, 4, "llama", ["ulysses_size=4", "2 attention heads and 1 key-value heads on each of 2", "1, 2"]),
    ],
)
def test_sizes_that_do_not_divide_a_model(tensor: int, sequence: int, family: str, said: list[str]) -> None:
    config = tiny_model(family).config
    with pytest.raises(UserError) as found:
        check_sizes(config, tensor, sequence)
    assert all(each in str(found.value) for each in said), found.value
    check_sizes(config, 2, 2)


def test_models_that_cannot_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"cuts layers.\*.self_attn.qkv_proj as colwise_gather_output"):
        check_sizes(Phi3Config(), 2, 1)
    monkeypatch.setattr(type(tiny_llama("whet").config), "base_model_tp_plan", None)
    with pytest.raises(UserError, match="tensor_parallel_size: transformers has no plan by which llama"):
        check_sizes(tiny_llama("whet").config, 2, 1)
    experts = tiny_config("mixtral")
    experts.num_local_experts = 3
    with pytest.raises(UserError, match="3 experts"):
        check_sizes(experts, 2, 1)
