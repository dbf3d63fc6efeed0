"""The tables: every key of every system has a row, every row leads to a key of whet's or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.compat.keys.row import Kind
from whet.compat.keys.tables import TABLES
from whet.compat.trees import resolved, tree
from whet.compat.values import CONVERSIONS
from whet.config.schema import all_keys, all_sections

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
# Keys that other pieces of whet bring; a command that needs one is refused until the schema has it.
COMING = (
    "worker.rollout.tools",
    "worker.rollout.max_turn",
    "worker.rollout.tool_format",
    "worker.reward.model",
    "trainer.max_staleness",
)
TREES = {
    "verl": (
        "verl_main_ppo", "verl_megatron", "verl_added", "verl_dapo", "verl_fully_async", "verl_fully_async_megatron",
        "verl_one_step_off", "verl_transfer_queue", "verl_gsm8k_multiturn_grpo_server", "verl_geo3k_multiturn_grpo",
    ),
    "or1": ("or1_main_ppo", "or1_megatron"),
    "sft": ("verl_fsdp_sft", "verl_sft", "verl_sft_newer", "or1_fsdp_sft"),
    "generation": ("verl_generation", "or1_generation"),
    "eval": ("verl_eval", "or1_eval"),
    "easyr1": ("easyr1_main", "easyr1_config"),
    "vppo": ("vppo_main", "vppo_config"),
}  # fmt: skip


@pytest.mark.parametrize("table", TREES)
def test_every_key_has_a_row(table: str) -> None:
    moved = ("critic.fsdp.",)  # read under their older names (compat/names.py)
    for name in TREES[table]:
        missing = [key for key in tree(name) if TABLES[table].find(key) is None and not key.startswith(moved)]
        assert not missing, name


def test_later_keys_of_verl_have_rows() -> None:
    missing = [key for key in tree("verl_newer") if TABLES["verl"].find(key) is None]
    assert [key for key in missing if not key.startswith("critic.fsdp.")] == []


@pytest.mark.parametrize("table", TABLES)
def test_rows_lead_to_keys_of_whet_or_say_why_not(table: str) -> None:
    import importlib

    from whet.compat.rules.rule import RULES
    from whet.compat.translate import _RULES

    for name in _RULES:
        importlib.import_module(f"whet.compat.rules.{name}")
    known = {*all_keys(), *all_sections()}
    for row in TABLES[table].rows:
        assert row.kind is Kind.MAPPED or row.says, row.key
        assert row.value in CONVERSIONS
        assert not row.rule or row.rule in RULES, row.rule
        assert row.kind is not Kind.MAPPED or row.to or row.rule, row.key
        for target in row.to:
            assert target in known or target.startswith(COMING), (row.key, target)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is not here")
def test_packaged_trees_have_the_documented_defaults() -> None:
    documented = json.loads((REFERENCE / "defaults.json").read_text())
    pairs = {
        "verl_main_ppo": ("verl-0.8.0.dev", "main_ppo"),
        "verl_megatron": ("verl-0.8.0.dev", "main_ppo --config-name=ppo_megatron_trainer"),
        "verl_gsm8k_multiturn_grpo": ("verl-0.8.0.dev", "main_ppo --config-name=gsm8k_multiturn_grpo"),
        "verl_one_step_off": ("verl-0.8.0.dev", "one_step_off_policy.main_ppo"),
        "verl_fully_async": ("verl-0.8.0.dev", "fully_async_main"),
        "verl_fsdp_sft": ("verl-0.8.0.dev", "fsdp_sft_trainer"),
        "verl_sft": ("verl-0.8.0.dev", "sft_trainer"),
        "or1_main_ppo": ("or1", "main_ppo"),
        "or1_megatron": ("or1", "main_ppo --config-name=ppo_megatron_trainer"),
        "easyr1_config": ("easyr1", "main config=examples/config.yaml"),
        "vppo_config": ("vppo", "main config=examples/configs/config.yaml"),
    }
    for name, (system, entry) in pairs.items():
        assert resolved(tree(name)) == documented[system][entry], name
