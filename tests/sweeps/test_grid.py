"""Combinations of a sweep: which keys are meant, how values are split, and what runs are called."""

from __future__ import annotations

import pytest

from whet.errors import UserError
from whet.sweeps.grid import full_key, read_grid, values_of


def test_the_product_of_all_lists_with_the_rest_shared() -> None:
    grid = read_grid(["my.yaml", "lr=1e-6,3e-6", "seed=0..1", "trainer.max_steps=5"])
    assert grid.shared == ("my.yaml", "trainer.max_steps=5")
    assert [each.name for each in grid.combinations] == [
        "lr=1e-6,seed=0",
        "lr=1e-6,seed=1",
        "lr=3e-6,seed=0",
        "lr=3e-6,seed=1",
    ]
    assert grid.combinations[1].arguments == ("worker.actor.optim.lr=1e-6", "trainer.seed=1")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-6,3e-6", ["1e-6", "3e-6"]),
        ("0..2", ["0", "1", "2"]),
        ("-1..1,7", ["-1", "0", "1", "7"]),
        ("[a,b],[c]", ["[a,b]", "[c]"]),
        ("{a: 1, b: 2}", ["{a: 1, b: 2}"]),
        ("'a,b',\"c,d\"", ["'a,b'", '"c,d"']),
        ("../data/x.jsonl", ["../data/x.jsonl"]),
        ("true, false", ["true", "false"]),
    ],
)
def test_values_are_split_outside_brackets_and_quotes(text: str, values: list[str]) -> None:
    assert values_of(text, text) == values


@pytest.mark.parametrize("text", ["1,,2", "1,", "2..0", "0..5000", "1,1", "0..2,1"])
def test_lists_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        values_of(text, text)


def test_a_key_may_be_written_by_its_last_part() -> None:
    assert full_key("lr") == "worker.actor.optim.lr"
    assert full_key("seed") == "trainer.seed"
    assert full_key("adv_estimator") == "algorithm.adv_estimator"
    assert full_key("worker.rollout.val_override_config.n") == "worker.rollout.val_override_config.n"
    with pytest.raises(UserError, match=r"several keys.*worker\.actor\.max_grad_norm"):
        full_key("max_grad_norm")
    with pytest.raises(UserError, match="no such key"):
        full_key("learnin_rat")


def test_files_keep_their_commas_and_names_are_those_of_folders() -> None:
    grid = read_grid(["data.train_files=a.jsonl,b.jsonl", "worker.actor.model.model_path=org/a,org/b"])
    assert "data.train_files=a.jsonl,b.jsonl" in grid.shared
    assert [each.name for each in grid.combinations] == ["model_path=org_a", "model_path=org_b"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["lr=1"], "several values"),
        (["lr=1,2", "worker.actor.optim.lr=3"], "twice"),
        (["lr=0..900", "seed=0..900"], "runs"),
        (["lr"], "key=value"),
    ],
)
def test_mistakes_are_said(arguments: list[str], match: str) -> None:
    with pytest.raises(UserError, match=match):
        read_grid(arguments)
