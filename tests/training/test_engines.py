"""Which ranks have an engine, and on which devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from learn.distributed.gloo import run_ranks
from training.engine_programs import seen

from whet.config import load_config
from whet.rollout.spec import engine_can
from whet.training.engines import engine_ranks


@pytest.mark.parametrize(
    ("arguments", "ranks", "own"),
    [
        (["worker.rollout.name=native"], [0, 1, 2, 3], False),
        (["worker.rollout.name=hf"], [0, 1, 2, 3], False),
        (["worker.rollout.name=vllm"], [0, 1, 2, 3], True),
        (["worker.rollout.name=vllm", "worker.rollout.tensor_parallel_size=2"], [0, 2], True),
        (
            ["worker.rollout.name=vllm", "worker.rollout.mode=server", "worker.rollout.server_address=http://a:1"],
            [0],
            True,
        ),
        (["worker.rollout.name=sglang", "worker.rollout.server_address=http://a:1"], [0], True),
    ],
)
def test_one_engine_for_every_copy_of_the_model(arguments: list[str], ranks: list[int], own: bool) -> None:
    config = load_config(arguments)
    assert list(engine_ranks(config, 4)) == ranks
    assert engine_can(config).shares_weights != own


def test_an_engine_sees_the_devices_of_all_ranks_that_share_it(tmp_path: Path) -> None:
    found = run_ranks(4, seen, tmp_path, 2)
    assert found == [("10,11", "10"), ("10,11", "11"), ("12,13", "12"), ("12,13", "13")]
