"""Names of advantages and losses are read from their decorators, without importing them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from whet.algos import registry
from whet.config.function_registry import FunctionRegistry
from whet.config.schema.actor import LOSSES
from whet.config.schema.algorithm import ADVANTAGES, AlgorithmConfig
from whet.errors import UserError


@pytest.mark.parametrize("table", [ADVANTAGES, LOSSES], ids=lambda table: table.key)
def test_the_names_in_the_source_are_those_that_decorators_register(table: FunctionRegistry) -> None:
    for file in (Path(registry.__file__).parent / table._package.rpartition(".")[2]).glob("*.py"):
        importlib.import_module(f"{table._package}.{file.stem}")
    assert sorted(table._own) == sorted(table.built_in)
    assert {"grpo_vectorized", "rloo_vectorized"} <= {*ADVANTAGES.names}
    assert {"default", "vanilla", "gspo_token"} <= {*LOSSES.names}


def test_options_in_the_source_are_those_of_the_functions() -> None:
    for name, declared in ADVANTAGES.declared.items():
        entry = ADVANTAGES.find(name)
        assert entry.needs == declared.options.get("needs", ())
        assert (
            entry.group == declared.options.get("group", False) == AlgorithmConfig(adv_estimator=name).compares_groups
        )


def test_listing_imports_nothing_and_finding_imports_one_file() -> None:
    program = """
import sys
from whet.config.schema.algorithm import ADVANTAGES
assert "rloo" in ADVANTAGES.names
assert "torch" not in sys.modules and not any("algos" in name for name in sys.modules)
from whet.algos import find_advantage
find_advantage("rloo_vectorized")
loaded = {name for name in sys.modules if name.startswith("whet.algos.advantages.")}
assert "whet.algos.advantages.rloo" in loaded and "whet.algos.advantages.gae" not in loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"algorithm\.adv_estimator=gpro: is not one of .*gae, .*did you mean grpo\?"):
        registry.find_advantage("gpro")
