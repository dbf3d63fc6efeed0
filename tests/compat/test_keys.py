"""The tables: every key of every system has a row, every row leads to a key of whet's or says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from whet.compat.keys.row import Kind
from whet.compat.keys.tables import TABLES
from whet.compat.names import newer_name
from whet.compat.tables import PAGES, page
from whet.compat.trees import resolved, tree
from whet.compat.values import CONVERSIONS
from whet.config.schema import all_keys, all_sections

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT.parent / "shared" / "reference"
# Keys that other pieces of whet bring; a command that needs one is refused until the schema has it.
COMING = (
    "worker.rollout.tools",
    "worker.rollout.max_turn",
    "worker.rollout.tool_format",
    "trainer.max_staleness",
)
TREES = {
    "verl": (
        "verl_main_ppo", "verl_megatron", "verl_added", "verl_dapo", "verl_fully_async", "verl_fully_async_megatron",
        "verl_one_step_off", "verl_transfer_queue", "verl_gsm8k_multiturn_grpo_server", "verl_geo3k_multiturn_grpo",
        "verl_older",
    ),
    "or1": ("or1_main_ppo", "or1_megatron"),
    "sft": ("verl_fsdp_sft", "verl_sft", "verl_sft_newer", "or1_fsdp_sft"),
    "generation": ("verl_generation", "or1_generation"),
    "eval": ("verl_eval", "or1_eval"),
    "easyr1": ("easyr1_main", "easyr1_config", "easyr1_older"),
    "vppo": ("vppo_main", "vppo_config"),
}  # fmt: skip


@pytest.mark.parametrize("table", TREES)
def test_every_key_has_a_row(table: str) -> None:
    moved = ("critic.fsdp.", "optim.")  # read under older names (compat/names.py); of the supervised trainer
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


def _documented() -> dict[str, set[str]]:
    """Return every key of the reference tables by the table of rows that has to know it."""
    found: dict[str, set[str]] = {}
    for system in ("easyr1", "vppo"):
        text = (REFERENCE / f"{system}_config_keys.md").read_text()
        found[system] = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    kinds = {"sft": "sft", "generation": "generation", "eval": "eval"}
    for system, entries in json.loads((REFERENCE / "defaults.json").read_text()).items():
        for entry, keys in entries.items():
            own = system.partition("-")[0]
            table = next((kind for word, kind in kinds.items() if word in entry), own)
            found.setdefault(table, set()).update(newer_name(key) for key in keys if " " not in key)
    return found


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is not here")
def test_every_documented_key_is_mapped_or_has_no_effect_or_is_not_here() -> None:
    documented = _documented()
    assert set(documented) >= {"verl", "or1", "easyr1", "vppo", "sft"}
    for table, keys in documented.items():
        assert len(keys) > 5, table
        assert sorted(key for key in keys if TABLES[table].find(key) is None) == [], table


@pytest.mark.parametrize("system", PAGES)
def test_pages_of_keys_are_current(system: str) -> None:
    written = ROOT / "docs" / "coming-from" / f"keys-{system}.md"
    assert written.read_text() == page(system), f"python -m whet.compat.tables {system} > {written.relative_to(ROOT)}"


def test_pages_have_every_row_that_maps() -> None:
    for name, tables in PAGES.items():
        text = page(name)
        for _, table, trees in tables:
            for key in (key for each in trees for key in tree(each)):
                row = TABLES[table].find(newer_name(key))
                assert row is None or f"`{row.key}`" in text, (name, key)
