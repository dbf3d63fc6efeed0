"""Checks of features are imported where a key of the feature is set, and miss nothing by it."""

from __future__ import annotations

from typing import Any

from whet.config import Config, with_values
from whet.config.checks.asynchronous import ASYNC_CHECKS
from whet.config.checks.correction import CORRECTION_CHECKS
from whet.config.checks.devices import DEVICE_CHECKS
from whet.config.checks.distill import DISTILL_CHECKS
from whet.config.checks.feature_files import FEATURE_FILE_CHECKS
from whet.config.checks.files import FILE_CHECKS
from whet.config.checks.numerics import NUMERICS_CHECKS
from whet.config.checks.recipes import RECIPE_CHECKS
from whet.config.checks.reward import REWARD_CHECKS
from whet.config.checks.run import hide, run_checks
from whet.config.checks.sampling import DEVICES, NUMERICS
from whet.config.checks.train import FEATURES, REWARD
from whet.config.keys import Key
from whet.config.schema import all_keys

GATED = (
    *zip(FEATURES, (DISTILL_CHECKS, RECIPE_CHECKS, ASYNC_CHECKS, CORRECTION_CHECKS), strict=True),
    (REWARD, REWARD_CHECKS),
    (DEVICES, DEVICE_CHECKS),
    (NUMERICS, NUMERICS_CHECKS),
    (FILE_CHECKS[-1], FEATURE_FILE_CHECKS),
)


def others(key: Key) -> list[Any]:
    """Values of a key that are not its default; most of them no good ones."""
    if key.kind == "bool":
        return [not key.default]
    if key.kind in ("int", "float"):
        return [3, 0, 7]
    if key.kind in ("str", "bounds"):
        return [*key.choices, "missing.py:name", "0.5"]
    return {"list": [["missing.py"]], "dict": [{"a": 1}], "numbers": [[1.0]], "pair": [(0.5, 0.6)]}.get(key.kind, [])


def test_no_single_key_has_a_problem_that_is_not_looked_for() -> None:
    for name, key in all_keys().items():
        for value in others(key):
            config = with_values(Config(), {name: value})
            for gated, checks in GATED:
                assert list(gated(config)) == run_checks(checks, config), (name, value)


def test_a_key_without_a_usable_value_counts_as_set() -> None:
    config = hide(with_values(Config(), {"trainer.n_gpus_per_node": 1000}), ["trainer.placement.learn"])
    assert any("n_gpus_per_node" in sentence for sentence in DEVICES(config))
