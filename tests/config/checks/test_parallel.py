"""Groups of devices that compute a row or a layer together must divide the devices."""

from __future__ import annotations

import pytest

from whet.config import Config, with_values
from whet.config.checks.devices import parallel_problems


def _problems(devices: int, tensor: int = 1, sequence: int = 1, critic: int = 1, learn: int | None = None) -> list[str]:
    values = {
        "trainer.n_gpus_per_node": devices,
        "trainer.placement.learn": learn,
        "worker.actor.tensor_parallel_size": tensor,
        "worker.actor.ulysses_size": sequence,
        "worker.critic.ulysses_size": critic,
    }
    return list(parallel_problems(with_values(Config(), values)))


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (4, 2, 2), (8, 2, 4), (6, 1, 3, 2), (6, 2, 1, 1, 4)])
def test_sizes_that_divide_the_devices(sizes: tuple[int, ...]) -> None:
    assert _problems(*sizes) == []


def test_what_does_not_divide_is_named_with_what_would() -> None:
    (problem,) = _problems(6, tensor=4)
    assert problem == (
        "worker.actor.tensor_parallel_size=4 does not divide the 6 devices of trainer.n_gpus_per_node x "
        "trainer.nnodes: set one of 1, 2, 3, 6"
    )
    (problem,) = _problems(1, sequence=2)
    assert problem.startswith("worker.actor.ulysses_size=2 does not divide the 1 devices")
    (problem,) = _problems(4, critic=3)
    assert problem.startswith("worker.critic.ulysses_size=3 does not divide the 4 devices")
    (problem,) = _problems(6, tensor=2, learn=3)
    assert "the 3 devices of trainer.placement.learn: set one of 1, 3" in problem


def test_sizes_count_together() -> None:
    tensor, sequence = _problems(4, tensor=2, sequence=4)
    assert tensor.startswith("worker.actor.tensor_parallel_size=2 x worker.actor.ulysses_size=4 does not divide")
    assert tensor.endswith("set one of 1")
    assert sequence.endswith("set one of 1, 2")
    tensor, _ = _problems(4, tensor=2, sequence=3)
    assert tensor.endswith("lower worker.actor.ulysses_size=3 first")
