"""What must hold between the devices of a run and the keys that spread work over them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from whet.config.checks.divisors import divisors, listed
from whet.config.keys import get
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
_DEVICES = "trainer.n_gpus_per_node x trainer.nnodes"


def device_problems(config: Config) -> Iterator[str]:
    """A sentence for each key that does not go with how many devices there are, or with what they are for."""
    yield from _pools(config)
    if config.trainer.n_gpus_per_node * config.trainer.nnodes > 1:
        yield from _groups(config)
        yield from _engines(config)
    else:
        yield from _shards(config)


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


def _shards(config: Config) -> Iterator[str]:
    """Keys of sharding that a run on one device would not look at."""
    for part, name in product(_PARTS, _SHARDING):
        key = f"worker.{part}.fsdp.{name}"
        if key == "worker.ref.fsdp.enable_cpu_offload":  # one device can wait with its reference in host memory too
            continue
        if get(config, key) != all_keys()[key].default:
            yield (
                f"{key}={show(get(config, key))}: one device shards nothing; leave it at "
                f"{show(all_keys()[key].default)}, or ask for more with trainer.n_gpus_per_node"
            )


def _groups(config: Config) -> Iterator[str]:
    trainer = config.trainer
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
    if size < 2 or config.worker.rollout.server_address is not None:
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
