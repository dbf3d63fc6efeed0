"""A config never changes: its sections are frozen, and `with_values` makes another one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from whet.config import Config, load_config, with_values
from whet.config.keys import get
from whet.config.schema import all_keys
from whet.config.views import eval_view, generate_view, sft_view


def sections_of(node: Any) -> list[Any]:
    below = [getattr(node, each.name) for each in fields(node)]
    return [node, *(each for child in below if is_dataclass(child) for each in sections_of(child))]


def test_no_section_can_be_assigned_to() -> None:
    sections = sections_of(Config())
    assert len(sections) > 20
    for section in sections:
        with pytest.raises(FrozenInstanceError):
            setattr(section, fields(section)[0].name, None)


def test_other_values_make_another_config() -> None:
    config = Config()
    other = with_values(config, {"data.seed": 7, "worker.actor.optim.lr": 0.5, "worker.actor.optim.betas": (0.5, 0.6)})
    assert (other.data.seed, other.worker.actor.optim.lr, other.worker.actor.optim.betas) == (7, 0.5, (0.5, 0.6))
    assert config == Config()
    assert other.trainer is config.trainer
    assert [name for name in all_keys() if get(other, name) != get(config, name)] == [
        *("data.seed", "worker.actor.optim.lr", "worker.actor.optim.betas")
    ]


def test_entries_of_mappings() -> None:
    config = load_config(["worker.rollout.val_override_config={n: 2}"])
    other = with_values(config, {"worker.rollout.val_override_config.temperature": 0.5})
    assert other.worker.rollout.val_override_config == {"n": 2, "temperature": 0.5}
    assert config.worker.rollout.val_override_config == {"n": 2}


def test_names_that_are_no_keys() -> None:
    with pytest.raises(AttributeError, match="DataConfig has no key sed"):
        with_values(Config(), {"data.sed": 7})


@pytest.mark.parametrize("view", [sft_view, generate_view, eval_view])
def test_views_leave_the_config_as_it_is(view: Any) -> None:
    argv = ["data.train_files=a.jsonl", "data.val_files=b.jsonl", "worker.rollout.n=4", "trainer.critic_warmup=3"]
    config, same = load_config(argv), load_config(argv)
    assert view(config) != config
    assert config == same
