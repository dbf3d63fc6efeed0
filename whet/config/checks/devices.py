"""Checks between the devices of a run and the keys that spread work over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product

from whet.config.checks.divisors import divisors, listed
from whet.config.checks.run import Check, known_values
from whet.config.schema import Config, all_keys
from whet.config.values import show

_SHARDING = (
    "enable_full_shard",
    "enable_cpu_offload",
    "enable_rank0_init",
    "fsdp_size",
    "mp_param_dtype",
    "mp_reduce_dtype",
    "mp_buffer_dtype",
)
_PARTS = ("actor", "critic", "ref")
_MOST_DEVICES = 64  # of one machine, whatever its processors
_PER_PROCESSOR = 4
_DEVICES = "trainer.n_gpus_per_node x trainer.nnodes"


def _pools(config: Config) -> Iterator[str]:
    trainer = config.trainer
    rollout, learn = trainer.placement.rollout, trainer.placement.learn
    if rollout is None and learn is None:
        if not config.worker.hybrid_engine:
            yield (
                "worker.hybrid_engine=false: say how many devices sample and how many learn, as in "
                "trainer.placement={rollout: 4, learn: 4}, or leave it at true"
            )
    elif rollout is None or learn is None:
        name = "rollout" if rollout is None else "learn"
        yield f"trainer.placement.{name} is not set: devices of their own need both rollout and learn"
    elif rollout + learn != trainer.n_gpus_per_node * trainer.nnodes:
        yield (
            f"trainer.placement.rollout={rollout} and trainer.placement.learn={learn} do not add up to the "
            f"{trainer.n_gpus_per_node * trainer.nnodes} devices of {_DEVICES}"
        )


def _machine(config: Config) -> Iterator[str]:
    """Worker processes are started for every device, so a number that no machine has is refused before."""
    count, most = config.trainer.n_gpus_per_node, max(_MOST_DEVICES, _PER_PROCESSOR * (os.cpu_count() or 1))
    if count > most:
        yield (
            f"trainer.n_gpus_per_node={count}: devices of one machine, at most {most} here; those of several "
            "machines are trainer.n_gpus_per_node x trainer.nnodes"
        )


def _shards(config: Config) -> Iterator[str]:
    """Keys of sharding that a run on one device would not look at."""
    if _devices(config) > 1:
        return
    names = [f"worker.{part}.fsdp.{name}" for part, name in product(_PARTS, _SHARDING)]
    for key, value in known_values(config, names):
        if key == "worker.ref.fsdp.enable_cpu_offload":  # one device can wait with its reference in host memory too
            continue
        if value != all_keys()[key].default:
            yield (
                f"{key}={show(value)}: one device shards nothing; leave it at "
                f"{show(all_keys()[key].default)}, or ask for more with trainer.n_gpus_per_node"
            )


def _groups(config: Config) -> Iterator[str]:
    trainer = config.trainer
    if _devices(config) == 1:
        return
    everyone = trainer.placement.learn or trainer.n_gpus_per_node * trainer.nnodes
    of = "trainer.placement.learn" if trainer.placement.learn else _DEVICES
    for part in _PARTS:
        size = getattr(config.worker, part).fsdp.fsdp_size
        cut = 1 if part == "critic" else config.worker.actor.tensor_parallel_size  # each place of which is sharded
        devices = max(1, everyone // cut)
        if size > 0 and devices % size:
            fitting = listed(divisors(devices))
            yield (
                f"worker.{part}.fsdp.fsdp_size={size} does not divide the {devices} devices of {of}"
                f"{f' / worker.actor.tensor_parallel_size={cut}' if cut > 1 else ''}: use -1 or one of "
                f"{fitting}"
            )


def _engines(config: Config) -> Iterator[str]:
    """An engine that is split over devices has them all on one machine."""
    trainer, size = config.trainer, config.worker.rollout.tensor_parallel_size
    if _devices(config) == 1 or size < 2 or config.worker.rollout.server_address is not None:
        return
    counts = {"trainer.n_gpus_per_node": trainer.n_gpus_per_node}
    if trainer.placement.rollout and trainer.placement.learn:
        counts = {"trainer.placement.rollout": trainer.placement.rollout}
        if trainer.nnodes > 1:  # those that learn are counted first
            counts |= {
                "trainer.placement.learn": trainer.placement.learn,
                "trainer.n_gpus_per_node": trainer.n_gpus_per_node,
            }
    for name, count in counts.items():
        if count % size:
            yield (
                f"worker.rollout.tensor_parallel_size={size} does not divide {name}={count}, whose devices are shared "
                "out to engines of that size; choose one that does"
            )


def _devices(config: Config) -> int:
    return config.trainer.n_gpus_per_node * config.trainer.nnodes


DEVICE_CHECKS: tuple[Check, ...] = (_machine, _pools, _groups, _engines, _shards)
