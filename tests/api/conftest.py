"""One tiny run, trained from Python objects alone, that the tests of the API share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.algos import registry

TEMPLATE = '{{ content | trim }}\nBegin with "Answer:"'
SMALL = {
    "prompt_key": "problem",
    "template": TEMPLATE,
    "batch_size": 8,
    "n": 4,
    "lr": 1e-3,
    "kl": 0,
    "max_prompt_length": 32,
    "max_response_length": 16,
}
# A cell of a notebook: its functions have a file name, but there is no such file.
CELL = """
import whet

@whet.advantage("centred")
def centred(signals, config):
    scores_B = signals.rewards_BT.sum(dim=1)
    advantages_BT = (scores_B - scores_B.mean())[:, None] * signals.mask_BT
    CALLS.append(len(scores_B))
    return advantages_BT, advantages_BT

@whet.policy_loss("plain")
def plain(inputs, config, aggregate):
    loss_BT = -inputs.advantages_BT * inputs.log_ratio.exp()
    return aggregate(inputs.weighted(loss_BT), inputs.mask_BT), {}
"""


def run_cell(text: str, number: int = 1) -> dict[str, Any]:
    """Execute text as ipykernel executes a cell; returns the variables of the notebook."""
    variables: dict[str, Any] = {"__name__": "__main__", "CALLS": []}
    exec(compile(text, f"/tmp/ipykernel_1/{number}.py", "exec"), variables)
    return variables


def scorer(weight: float) -> Callable[[str, str], dict[str, float]]:
    """Return a closure, which only pickling by value can send."""

    def score(response: str, answer: str) -> dict[str, float]:
        right = float(response.strip() == f"Answer: {answer}")
        return {"overall": weight * right, "accuracy": right}

    return score


@pytest.fixture(scope="session")
def rows(quickstart: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (quickstart / "train.jsonl").read_text().splitlines()[:64]]


@pytest.fixture(scope="session")
def cell() -> Iterator[dict[str, Any]]:
    """The variables of a notebook whose cell has registered an advantage and a loss; the names are gone afterwards."""
    tables = (registry._ADVANTAGES, registry._NEEDS, registry._POLICY_LOSSES, registry._PREPARATIONS)
    before = [dict(table) for table in tables]
    yield run_cell(CELL)
    for table, entries in zip(tables, before):
        table.clear()
        table.update(entries)


@pytest.fixture(scope="session")
def run(
    rows: list[dict[str, str]], cell: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> whet.Run:
    """Two steps of training with rows, template, reward, advantage and loss given as Python objects."""
    return whet.train(
        "whet/quickstart",
        rows,
        scorer(2.0),
        val_data=rows[:8],
        advantage="centred",
        loss="plain",
        steps=2,
        save_freq=1,
        output=tmp_path_factory.mktemp("api") / "run",
        **SMALL,
    )
