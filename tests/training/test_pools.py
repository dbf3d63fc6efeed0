"""Devices that only sample: the run is the same, and a rank that dies there is named like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from remote_runs import assert_alike, killed_rank, ray_processes, run

pytestmark = pytest.mark.slow

POOLS = "trainer.placement={rollout: 2, learn: 1}"
# Those of a run whose sampler and learner are apart: its old log-probs are the learner's.
RECOMPUTE = "worker.actor.recompute_old_log_probs=true"


@pytest.mark.parametrize(
    ("devices", "pools", "arguments"),
    [
        (3, "trainer.placement={rollout: 2, learn: 1}", ()),
        (3, "trainer.placement={rollout: 1, learn: 2}", ("worker.actor.model.lora.rank=4",)),
    ],
    ids=["two sample", "two learn adapters"],
)
def test_devices_of_their_own_change_no_number(
    tmp_path: Path, devices: int, pools: str, arguments: tuple[str, ...]
) -> None:
    pytest.importorskip("ray")
    alone = run(tmp_path / "alone", 1, 2, RECOMPUTE, *arguments)
    assert_alike(run(tmp_path / "apart", devices, 2, pools, *arguments), alone)
    # a checkpoint does not know who sampled
    further = run(tmp_path / "alone", devices, 3, pools, *arguments)
    assert_alike(run(tmp_path / "apart", 1, 3, RECOMPUTE, *arguments), further)
    assert not ray_processes()


def test_a_rank_that_samples_and_dies_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pools = ("trainer.n_gpus_per_node=3", "worker.hybrid_engine=false", POOLS)
    error = killed_rank(tmp_path / "run", *pools, rank=2)
    assert "rollout rank " in error
    assert "died" in error
    assert "ranks/rollout/rank_*" in error
