"""Checks that the devices of a run can be divided into groups that compute a row, or a layer, together."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.divisors import divisors, listed
from whet.config.schema import Config


def parallel_problems(config: Config) -> Iterator[str]:
    """A sentence where `tensor_parallel_size` and `ulysses_size` do not divide the devices that learn."""
    trainer, actor, critic = config.trainer, config.worker.actor, config.worker.critic
    devices, of = trainer.n_gpus_per_node * trainer.nnodes, "trainer.n_gpus_per_node x trainer.nnodes"
    if trainer.placement.learn is not None:
        devices, of = trainer.placement.learn, "trainer.placement.learn"
    tensor, sequence = actor.tensor_parallel_size, actor.ulysses_size
    sizes = {
        "worker.actor.tensor_parallel_size": (tensor, f" x worker.actor.ulysses_size={sequence}", sequence),
        "worker.actor.ulysses_size": (sequence, f" x worker.actor.tensor_parallel_size={tensor}", tensor),
        "worker.critic.ulysses_size": (critic.ulysses_size, "", 1),
    }
    for key, (size, beside, other) in sizes.items():
        if size > 1 and devices % (size * other):
            fitting = listed(divisors(devices // other)) if devices % other == 0 else ""
            hint = f"set one of {fitting}" if fitting else f"lower {beside.removeprefix(' x ')} first"
            yield f"{key}={size}{beside if other > 1 else ''} does not divide the {devices} devices of {of}: {hint}"
