"""Devices of a run that torchrun has started."""

from __future__ import annotations

from whet.config import Config
from whet.config.keys import with_values
from whet.errors import UserError
from whet.system.launch import Launch


def take_devices(config: Config, launch: Launch) -> Config:
    """Return the config with the devices that torchrun decided on; 1, the default, leaves them to it."""
    if launch.world % launch.local_world:
        raise UserError(
            f"torchrun started {launch.world} processes in all and {launch.local_world} on this machine: give every "
            "machine the same --nproc_per_node"
        )
    started = {"n_gpus_per_node": (launch.local_world, "--nproc_per_node"), "nnodes": (launch.nodes, "--nnodes")}
    for key, (count, option) in started.items():
        asked = getattr(config.trainer, key)
        if asked not in (1, count):
            raise UserError(
                f"trainer.{key}={asked}, but torchrun was started with {option} {count}: leave the key out, since "
                f"torchrun decides, or start it with {option} {asked}"
            )
    return with_values(config, {f"trainer.{key}": count for key, (count, _) in started.items()})
