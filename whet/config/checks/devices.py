"""Checks of the devices of a run: how they are divided into groups, and the keys that spread work over them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import product

from whet.config.checks.run import Check, known_values
from whet.config.schema import Config, all_keys
from whet.config.values import show

MOST_TRIED = 100_000  # divisors up to this and their counterparts are found, which takes milliseconds
MOST_SHOWN = 20
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


def divisors(whole: int) -> list[int]:
    """The divisors of a number in order; of one above 10^10, those that are small or large."""
    small = [size for size in range(1, min(math.isqrt(whole), MOST_TRIED) + 1) if whole % size == 0]
    return sorted({*small, *(whole // size for size in small)})


def listed(numbers: list[int]) -> str:
    """Numbers as part of a sentence, without most of a long list."""
    if len(numbers) <= MOST_SHOWN:
        return ", ".join(map(str, numbers))
    return f"{', '.join(map(str, numbers[: MOST_SHOWN - 1]))}, ..., {numbers[-1]}"


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


DEVICE_CHECKS: tuple[Check, ...] = (_machine, _pools, _groups, _engines, _shards, parallel_problems)
