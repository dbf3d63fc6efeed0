"""Keys of offloading: what they do where, and a sentence where they change nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from whet.config import load_config
from whet.training import models
from whet.training.offloading import offload_notes
from whet.training.parts import shares_weights

GPU, CPU = torch.device("cuda"), torch.device("cpu")
ALL = [
    f"worker.{part}.offload.{name}=true"
    for part in ("actor", "critic", "ref")
    for name in ("offload_params", "offload_optimizer")
]


ACTIVATIONS = [f"worker.{part}.model.enable_activation_offload=true" for part in ("actor", "critic")]


def notes(device: torch.device, *arguments: str) -> list[str]:
    return list(offload_notes(load_config(list(arguments)), device))


def test_on_a_cpu_every_key_is_answered_once():
    found = notes(CPU, *ALL, *ACTIVATIONS, "worker.ref.fsdp.enable_cpu_offload=true")
    keys = [*ALL, *ACTIVATIONS, "worker.ref.fsdp.enable_cpu_offload=true"]
    assert found == [f"{key} changes nothing: on a CPU all of it is in host memory already" for key in keys]
    assert notes(CPU) == []


@pytest.mark.parametrize("key", [*ALL, *ACTIVATIONS, "worker.ref.fsdp.enable_cpu_offload=true"])
def test_a_run_says_it(key: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "count_parameters", lambda path: None)
    said: list[str] = []
    run: Any = SimpleNamespace(
        config=load_config([key]), placement=SimpleNamespace(device=CPU), model=SimpleNamespace(path="")
    )
    console: Any = SimpleNamespace(notes=said.extend)
    models.prepare_device(run, console)
    assert said == [f"{key} changes nothing: on a CPU all of it is in host memory already"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["worker.actor.offload.offload_params=true"],
            "worker.rollout.name=native samples with the learner's own weights",
        ),
        (["worker.ref.offload.offload_optimizer=true"], "the reference has no optimizer"),
        (
            ["worker.ref.offload.offload_params=true", "worker.actor.model.lora.rank=4"],
            "with adapters the reference is",
        ),
        (
            ["worker.ref.fsdp.enable_cpu_offload=true", "algorithm.kl_penalty=full", "algorithm.use_kl_loss=true"],
            "asks the reference in every pass",
        ),
        (
            [
                "worker.critic.model.enable_activation_offload=true",
                "worker.critic.model.enable_gradient_checkpointing=false",
            ],
            "worker.critic.model.enable_gradient_checkpointing=false keeps all activations on the device",
        ),
    ],
)
def test_on_a_gpu_only_keys_without_effect_are_answered(arguments: list[str], said: str):
    (note,) = notes(GPU, *arguments)
    assert note.startswith(f"{arguments[0]} changes nothing: ")
    assert said in note


def test_what_moves_is_not_mentioned():
    assert notes(GPU, *ACTIVATIONS, "worker.actor.model.enable_gradient_checkpointing=true") == []
    assert notes(GPU, "worker.actor.offload.offload_optimizer=true", "worker.ref.offload.offload_params=true") == []
    assert notes(GPU, "worker.actor.offload.offload_params=true", "worker.rollout.name=vllm") == []
    assert notes(GPU, "worker.actor.offload.offload_params=true", "trainer.n_gpus_per_node=2") == []


def test_one_device_shares_its_weights_with_engines_that_have_none():
    assert shares_weights(load_config([]))
    assert not shares_weights(load_config(["worker.rollout.name=vllm"]))
    assert not shares_weights(load_config(["trainer.n_gpus_per_node=2"]))
