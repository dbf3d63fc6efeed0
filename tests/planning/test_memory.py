"""Properties of planned memory and time, whatever the numbers."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.config import load_config
from whet.learn.kahan import KahanAdamW
from whet.learn.memory import token_bytes
from whet.planning.machines import GPUS
from whet.planning.memory import Memory
from whet.planning.models import config_of
from whet.planning.planned import Plan, Question, plan_model
from whet.planning.shapes import shape_of

NAMES = ("SmolLM2-135M", "Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen3-8B", "Qwen3-30B-A3B", "Qwen2.5-VL-7B")


@functools.cache
def planned(name: str, *settings: str, gpu: str = "H100-80G") -> Plan:
    sizes = ("worker.rollout.n=8", "data.rollout_batch_size=64", "worker.actor.global_batch_size=64")
    config = load_config([f"worker.actor.model.model_path={name}", *sizes, *settings])
    model = config_of(name)
    return plan_model(Question(config, GPUS[gpu]), name, model, shape_of(model))


def needed(name: str, *settings: str, gpu: str = "H100-80G") -> Memory:
    return planned(name, *settings, gpu=gpu).memory


def devices(count: int) -> tuple[str, str]:
    return f"trainer.n_gpus_per_node={min(8, count)}", f"trainer.nnodes={max(1, count // 8)}"


names, powers = st.sampled_from(NAMES), st.integers(1, 6)


@settings(deadline=None, max_examples=15)
@given(names, powers, st.booleans(), st.sampled_from([256, 4096]))
def test_more_gpus_never_need_more_of_each(name: str, power: int, adapters: bool, length: int) -> None:
    more = ("worker.actor.model.lora.rank=8",) if adapters and name == "SmolLM2-135M" else ()
    common = (f"data.max_response_length={length}", *more)
    fewer, many = (needed(name, *devices(2**p), *common) for p in (power, power + 1))
    assert many.needed <= fewer.needed
    for part in ("weights", "gradients", "optimizer", "reference"):
        assert many.update.get(part, 0) <= fewer.update.get(part, 0)  # adapters have no reference


@settings(deadline=None, max_examples=30)
@given(
    names, st.integers(64, 16384), st.integers(1, 16384), st.sampled_from(["true", "false"]), st.sampled_from([1, 8])
)
def test_a_longer_context_never_needs_less(name: str, length: int, more: int, recompute: str, count: int) -> None:
    common = (f"worker.actor.model.enable_gradient_checkpointing={recompute}", *devices(count))
    short, long = (needed(name, f"data.max_response_length={each}", *common) for each in (length, length + more))
    assert long.needed >= short.needed
    assert long.budget.tokens_update is not None
    assert short.budget.tokens_update is not None
    assert long.budget.tokens_update >= short.budget.tokens_update


@settings(deadline=None, max_examples=20)
@given(names, st.sampled_from([1, 8]))
def test_recomputing_never_needs_more_and_never_is_faster(name: str, count: int) -> None:
    key = "worker.actor.model.enable_gradient_checkpointing"
    common = ("worker.actor.micro_batch_tokens=4096", *devices(count))
    kept, again = (planned(name, f"{key}={value}", *common) for value in ("false", "true"))
    assert again.memory.update["activations"] < kept.memory.update["activations"]
    assert again.times.update >= kept.times.update


def test_a_larger_gpu_fits_what_a_smaller_one_does() -> None:
    by_memory = sorted(GPUS.values(), key=lambda gpu: gpu.memory)[::4]
    for name in NAMES:
        needs = [needed(name, gpu=gpu.name) for gpu in by_memory]
        fits = [each.needed <= gpu.memory for each, gpu in zip(needs, by_memory)]
        assert fits == sorted(fits)


def test_bytes_of_a_parameter_are_those_of_the_optimizer() -> None:
    parameter = torch.nn.Parameter(torch.ones(1024, dtype=torch.bfloat16))
    optimizer = KahanAdamW([parameter], lr=1e-3)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = sum(t.numel() * t.element_size() for t in optimizer.state[parameter].values() if t.numel() > 1)
    memory = needed("Qwen2.5-7B")
    parameters = shape_of(config_of("Qwen2.5-7B")).parameters
    assert memory.update["weights"] == 2 * parameters
    assert memory.update["gradients"] == 4 * parameters
    assert memory.update["optimizer"] == states // 1024 * parameters


def test_activations_are_those_of_the_learner() -> None:
    plan = planned("Qwen3-8B", "worker.actor.micro_batch_tokens=2048", gpu="H200-141G")
    token = token_bytes(plan.model, torch.bfloat16, fused=True)
    assert plan.memory.update["activations"] in {
        2048 * token.kept,
        2048 * token.mlp_recomputed,
        2048 * token.recomputed,
    }


def test_offloaded_activations_take_no_memory_of_the_device() -> None:
    settings = ("worker.actor.micro_batch_tokens=16384", "data.max_response_length=16000")
    key, recompute = (
        "worker.actor.model.enable_activation_offload",
        "worker.actor.model.enable_gradient_checkpointing",
    )
    here = planned("Qwen3-8B", *settings, f"{recompute}=true", gpu="H200-141G")
    away = planned("Qwen3-8B", *settings, f"{key}=true", gpu="H200-141G")
    assert away.memory.budget == here.memory.budget
    moved = (36 - 3) * 2 * 4096 * 2  # bytes of a token: the inputs of all layers but three
    assert here.memory.update["activations"] - away.memory.update["activations"] == 16384 * moved
    assert here.memory.needed - away.memory.needed == away.subject.work.longest * moved
    assert away.times.update >= here.times.update
    assert planned("Qwen3-8B", *settings, f"{key}=true", f"{recompute}=false", gpu="H200-141G").memory == (
        planned("Qwen3-8B", *settings, f"{recompute}=false", gpu="H200-141G").memory
    )


@pytest.mark.parametrize("kind", ["offload", "placement", "critic", "vllm"])
def test_settings_change_what_they_are_about(kind: str) -> None:
    plain = planned("Qwen2.5-7B", *devices(8))
    if kind == "offload":
        other = planned("Qwen2.5-7B", *devices(8), "worker.actor.offload.offload_optimizer=true")
        assert other.memory.rollout["optimizer"] == 0 < plain.memory.rollout["optimizer"]
        assert other.times.update > plain.times.update
    elif kind == "placement":
        other = planned("Qwen2.5-7B", *devices(8), "trainer.placement={rollout: 4, learn: 4}")
        assert other.memory.rollout.keys() == {"whole policy", "cache", "context"}
        assert other.memory.update["optimizer"] == 2 * plain.memory.update["optimizer"]
    elif kind == "critic":
        other = planned("Qwen2.5-7B", *devices(8), "algorithm.adv_estimator=gae")
        assert other.memory.update["critic"] > plain.memory.update["weights"]
        assert other.times.update > 1.5 * plain.times.update
    else:
        other = planned("Qwen2.5-7B", *devices(8), "worker.rollout.name=vllm")
        assert other.memory.rollout["cache"] + other.memory.rollout["whole policy"] == pytest.approx(
            0.6 * GPUS["H100-80G"].memory, rel=1e-6
        )


def test_experts_that_fused_kernels_know_are_planned_with_them() -> None:
    known = config_of("Qwen3-30B-A3B")
    config = load_config(["worker.actor.model.model_path=Qwen3-30B-A3B", "worker.actor.micro_batch_tokens=8192"])
    shapes = (shape_of(known), dataclasses.replace(shape_of(known), grouped=False))
    fused, own = (plan_model(Question(config, GPUS["H200-141G"]), "a model", known, shape) for shape in shapes)
    assert fused.memory.update["activations"] < own.memory.update["activations"]
    assert fused.times.rollout < own.times.rollout
    assert fused.times.update < own.times.update
    assert shapes[0].expert_weights == 48 * 3 * 2048 * 8 * 768
    assert shape_of(config_of("Qwen3-8B")).expert_weights == 0
