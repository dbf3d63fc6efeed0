"""Settings that come with an objective's name: under everything that is given, and known to the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.api.settings import read_settings
from whet.config import Config, load_config
from whet.config.keys import get, with_values
from whet.config.objectives import SETTINGS
from whet.config.schema import all_keys
from whet.config.schema.actor import LOSSES
from whet.config.schema.algorithm import ADVANTAGES

NAMED = [(key, name) for key, by_name in SETTINGS.items() for name in by_name]


def _bounds(config: Config) -> tuple[float, float, str]:
    actor = config.worker.actor
    return actor.clip_ratio_low, actor.clip_ratio_high, actor.loss_avg_mode


@pytest.mark.parametrize(("key", "name"), NAMED)
def test_a_name_brings_its_authors_settings(key: str, name: str) -> None:
    assert name in {"worker.actor.loss_type": LOSSES, "algorithm.adv_estimator": ADVANTAGES}[key].names
    config = load_config([f"{key}={name}"])
    for target, value in SETTINGS[key][name].items():
        assert get(config, target) == value != all_keys()[target].default


def test_files_and_arguments_win(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("worker: {actor: {clip_ratio_low: 0.01}}\n", encoding="utf-8")
    gspo = "worker.actor.loss_type=gspo"
    assert _bounds(load_config([gspo])) == (3e-4, 4e-4, "seq")
    assert _bounds(load_config([f"config={file}", gspo])) == (0.01, 4e-4, "seq")
    assert _bounds(load_config([f"config={file}", gspo, "worker.actor.loss_avg_mode=token"])) == (0.01, 4e-4, "token")
    file.write_text("worker: {actor: {loss_type: gspo}}\n", encoding="utf-8")
    assert _bounds(load_config([f"config={file}"])) == (3e-4, 4e-4, "seq")
    assert _bounds(load_config([f"config={file}", "worker.actor.loss_type=default"])) == (0.2, 0.3, "token")
    assert _bounds(load_config([gspo, "algorithm.adv_estimator=dr_grpo"])) == (3e-4, 4e-4, "seq")
    assert _bounds(load_config(["algorithm.adv_estimator=dr_grpo"])) == (0.2, 0.3, "seq-mean-token-sum-norm")


@pytest.mark.parametrize("match", ["verl", "easyr1", "vppo", "or1"])
def test_other_systems_have_defaults_of_their_own(match: str) -> None:
    keys = ["worker.actor.loss_type=gspo", "algorithm.adv_estimator=dr_grpo", f"algorithm.match={match}"]
    assert _bounds(load_config(keys)) == (0.2, 0.3, "token")


def test_a_config_object_keeps_its_values() -> None:
    """A value that is whet's default, but not the objective's, was somebody's choice."""
    plain = load_config(["worker.actor.loss_type=gspo"])
    chosen = with_values(plain, {"worker.actor.clip_ratio_low": 0.2})
    for config in (plain, chosen):
        assert _bounds(read_settings("train", config, None, {}, {})) == _bounds(config)
