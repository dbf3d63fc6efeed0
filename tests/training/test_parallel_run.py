"""Runs whose devices share layers or rows are the run on one device."""

from __future__ import annotations

from pathlib import Path

import pytest
from remote_runs import assert_alike, ray_processes, run

from whet.cli import main


@pytest.mark.parametrize(
    ("devices", "arguments", "said"),
    [
        (1, ["worker.actor.tensor_parallel_size=2"], "tensor_parallel_size=2 does not divide the 1 devices"),
        (6, ["worker.actor.tensor_parallel_size=3"], "4 attention heads, which it must divide: set one of 1, 2, 4"),
        (3, ["worker.actor.ulysses_size=3"], "ulysses_size=3: the model has 4 attention heads"),
    ],
)
def test_sizes_that_do_not_fit_are_said_first(
    devices: int, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    keys = [f"trainer.n_gpus_per_node={devices}", "trainer.device=cpu", f"trainer.save_checkpoint_path={folder}"]
    assert main(["train", *keys, *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("worker.actor.tensor_parallel_size=2",),
        ("worker.actor.ulysses_size=2", "algorithm.disable_kl=false", "algorithm.use_kl_loss=true"),
        ("worker.critic.ulysses_size=2", "algorithm.adv_estimator=gae", "worker.critic.global_batch_size=32"),
    ],
    ids=["tensor", "sequence", "critic"],
)
def test_two_ranks_train_as_one_process_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    pytest.importorskip("ray")
    parallel, *others = arguments
    alone = run(tmp_path / "alone", 1, 4, *others)
    assert_alike(run(tmp_path / "two", 2, 4, parallel, *others), alone)
    # and one process goes on where the ranks stopped
    assert_alike(run(tmp_path / "two", 1, 6, *others), run(tmp_path / "alone", 1, 6, *others))
    assert not ray_processes()
