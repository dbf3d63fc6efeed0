"""Effective settings where the command is silent: what each system does by default, key by key."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet.compat.systems import SYSTEMS
from whet.compat.translate import arguments_of, translate
from whet.config import Config
from whet.config.keys import get
from whet.config.loading.load import load

_HYDRA = ["actor_rollout_ref.rollout.name=vllm"]
COMMANDS = {
    "verl": ("verl", "verl.trainer.main_ppo", _HYDRA),
    "or1": ("or1", "verl.trainer.main_ppo", []),
    "easyr1": ("easyr1", "verl.trainer.main", []),
    "easyr1 yaml": ("easyr1", "verl.trainer.main", ["config=examples/config.yaml"]),
    "vppo yaml": ("vppo", "verl.trainer.main", ["config=examples/configs/config.yaml"]),
    "verl kl": ("verl", "verl.trainer.main_ppo", [*_HYDRA, "actor_rollout_ref.actor.use_kl_loss=True"]),
    "verl lora": ("verl", "verl.trainer.main_ppo", [*_HYDRA, "actor_rollout_ref.model.lora_rank=8"]),
    "verl sft": ("verl", "verl.trainer.fsdp_sft_trainer", []),
    "verl new sft": ("verl", "verl.trainer.sft_trainer", []),
    "or1 sft": ("or1", "verl.trainer.fsdp_sft_trainer", []),
    "verl generation": ("verl", "verl.trainer.main_generation", []),
    "or1 generation": ("or1", "verl.trainer.main_generation", []),
}
# Key of whet, then its effective value by command; a key that differs between systems.
EXPECTED: list[tuple[str, dict[str, Any]]] = [
    ("worker.actor.clip_ratio_high", {"verl": 0.2, "or1": 0.2, "easyr1": 0.3, "vppo yaml": 0.28}),
    ("worker.actor.clip_ratio_low", {"verl": 0.2, "or1": 0.2, "easyr1": 0.2}),
    ("worker.actor.ppo_kl_coef", {"verl": 0.1, "or1": 1.0}),
    ("algorithm.disable_kl", {"verl": True, "or1": True, "easyr1": False, "easyr1 yaml": False, "vppo yaml": True, "verl kl": False}),
    ("algorithm.use_kl_loss", {"verl kl": True, "easyr1": False, "easyr1 yaml": True, "vppo yaml": False}),
    ("algorithm.kl_penalty", {"verl kl": "low_var_kl", "easyr1": "kl", "easyr1 yaml": "low_var_kl"}),
    ("algorithm.kl_coef", {"verl kl": 0.001, "easyr1": 0.001, "easyr1 yaml": 0.01}),
    ("algorithm.adv_estimator", {"verl": "gae", "or1": "gae", "easyr1": "grpo"}),
    ("algorithm.match", {"verl": "verl", "or1": "or1", "easyr1": "easyr1", "vppo yaml": "vppo"}),
    ("data.rollout_batch_size", {"verl": 1024, "or1": 1024, "easyr1": 512, "vppo yaml": 384}),
    ("worker.actor.global_batch_size", {"verl": 256, "or1": 256, "easyr1": 256, "easyr1 yaml": 128, "vppo yaml": 128}),
    ("worker.critic.optim.lr", {"verl": 1e-5, "or1": 1e-5}),
    ("worker.critic.global_batch_size", {"verl": 256, "or1": 256}),
    ("worker.actor.entropy_coeff", {"verl": 0.0, "or1": 0.001, "easyr1": 0.0}),
    ("worker.rollout.n", {"verl": 1, "or1": 1, "easyr1": 1, "easyr1 yaml": 5, "vppo yaml": 5, "verl generation": 5, "or1 generation": 1}),
    ("worker.rollout.top_p", {"verl": 1.0, "easyr1": 1.0, "vppo yaml": 0.99, "verl generation": 0.7, "or1 generation": 1.0}),
    ("worker.rollout.top_k", {"verl": -1, "verl generation": 50, "or1 generation": -1}),
    ("worker.rollout.temperature", {"verl": 1.0, "verl generation": 1.0, "or1 generation": 0.6}),
    ("worker.rollout.val_override_config", {"verl": {"n": 1, "temperature": 0, "top_p": 1.0, "top_k": -1}, "or1": {"n": 1, "temperature": 0.6}, "easyr1": {}, "easyr1 yaml": {"temperature": 0.6, "top_p": 0.95, "n": 1}, "vppo yaml": {"temperature": 1.0, "n": 8}}),
    ("data.filter_overlong_prompts", {"verl": False, "or1": True, "easyr1": True}),
    ("data.max_response_length", {"verl": 512, "easyr1 yaml": 2048, "verl generation": 512, "or1 generation": 32768}),
    ("data.answer_key", {"verl": "reward_model.ground_truth", "or1": "reward_model.ground_truth", "easyr1": "answer"}),
    ("data.prompt_key", {"verl": "prompt", "easyr1 yaml": "problem", "verl sft": "question"}),
    ("trainer.total_epochs", {"verl": 30, "or1": 30, "easyr1": 15, "vppo yaml": 15, "verl sft": 4, "or1 sft": 4, "verl new sft": 4}),
    ("worker.actor.fsdp.torch_dtype", {"verl": "fp32", "or1": "fp32", "easyr1": "fp32", "vppo yaml": "bf16", "verl sft": "fp32"}),
    ("worker.actor.optim.strategy", {"easyr1": "adamw", "vppo yaml": "adamw_bf16"}),
    ("worker.actor.optim.lr", {"verl": 1e-6, "verl sft": 1e-5, "verl new sft": 1e-3, "or1 sft": 1e-5}),
    ("worker.actor.optim.betas", {"verl": (0.9, 0.999), "verl sft": (0.9, 0.95), "or1 sft": (0.9, 0.95), "verl new sft": (0.9, 0.999)}),
    ("worker.actor.optim.lr_warmup_ratio", {"verl": 0.0, "verl sft": 0.1, "or1 sft": 0.1, "verl new sft": 0.0}),
    ("worker.actor.optim.lr_scheduler_type", {"verl": "constant", "verl sft": "cosine", "or1 sft": "cosine", "verl new sft": "constant"}),
    ("sft.batch_size", {"verl sft": 256, "or1 sft": 256, "verl new sft": 256}),
    ("trainer.seed", {"verl sft": 1, "or1 sft": 1}),
    ("worker.actor.model.lora.alpha", {"verl lora": 16, "easyr1": 64}),
    ("trainer.n_gpus_per_node", {"verl": 8, "or1": 8, "easyr1": 8, "vppo yaml": 2}),
    ("trainer.project_name", {"verl": "verl_examples", "easyr1": "easy_r1"}),
    ("trainer.val_before_train", {"verl": True, "or1": True}),
    ("trainer.max_try_make_batch", {"easyr1": 20, "vppo yaml": -1}),
    ("algorithm.online_filtering", {"easyr1": False, "vppo yaml": True}),
    ("sft.messages_key", {"verl sft": None, "verl new sft": "messages"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def configs() -> dict[str, Config]:
    made = {}
    for name, (system, module, arguments) in COMMANDS.items():
        entry = SYSTEMS[system].entry(module)
        assert entry is not None
        translation = translate(SYSTEMS[system], entry, list(arguments), Path("."))
        assert translation.original == translation.refused == []
        made[name] = load(arguments_of(translation)).result()
    return made


def test_the_table_has_thirty_keys_that_differ() -> None:
    assert len(EXPECTED) >= 30


@pytest.mark.parametrize(("key", "values"), EXPECTED, ids=[key for key, _ in EXPECTED])
def test_effective_settings(configs: dict[str, Config], key: str, values: dict[str, Any]) -> None:
    assert {name: get(configs[name], key) for name in values} == values


def test_fixed_keeps_the_numbers_of_whet() -> None:
    entry = SYSTEMS["verl"].entry("verl.trainer.main_ppo")
    assert entry is not None
    made = translate(SYSTEMS["verl"], entry, list(_HYDRA), Path("."), fixed=True)
    assert load(arguments_of(made)).result().algorithm.match == "whet"
