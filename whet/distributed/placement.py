"""Devices that a run asks for, and whether a cluster has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.config.schema.trainer import TrainerConfig
from whet.errors import UserError

_FEWEST_PROCESSES, _PER_PROCESSOR = 16, 4
RESOURCES = {"cuda": "GPU", "cpu": "CPU"}  # what Ray calls them


@dataclass(frozen=True)
class Placement:
    """So many devices on each of so many machines, shared by all work or split into pools."""

    per_node: int = 1  # trainer.n_gpus_per_node
    nodes: int = 1  # trainer.nnodes
    device: str = "auto"  # trainer.device: GPUs where the cluster has any
    rollout: int | None = None  # trainer.placement: devices that only sample; None = all do both
    timeout: float | None = 45.0  # trainer.worker_timeout; None = wait for ever

    @property
    def size(self) -> int:
        """Devices in all."""
        return self.per_node * self.nodes

    @property
    def pools(self) -> dict[str, range]:
        """The devices of each pool, counted through the machines; learning comes first, whole machines where it can."""
        learn = self.size - (self.rollout or 0)
        if self.rollout is None:
            return {"colocated": range(self.size)}
        return {"learn": range(learn), "rollout": range(learn, self.size)}

    def place(self, device: int) -> tuple[int, int]:
        """The machine of a device and its number there."""
        return divmod(device, self.per_node)

    @staticmethod
    def of(trainer: TrainerConfig) -> Placement:
        """Read the config; `check_config` has made sure that the pools add up."""
        timeout = None if trainer.worker_timeout == -1 else float(trainer.worker_timeout)
        return Placement(trainer.n_gpus_per_node, trainer.nnodes, trainer.device, trainer.placement.rollout, timeout)


def asked(placement: Placement) -> str:
    """The keys that ask for devices, for error messages."""
    return f"trainer.n_gpus_per_node={placement.per_node}, trainer.nnodes={placement.nodes}"


def choose_device(placement: Placement, nodes: Sequence[Mapping[str, Any]]) -> str:
    """`cuda` or `cpu`, by `trainer.device` and what the machines (as `ray.nodes()` lists them) have."""
    if placement.device != "auto":
        return placement.device
    return "cuda" if any(node["Resources"].get("GPU") for node in nodes) else "cpu"


def check_room(placement: Placement, device: str, nodes: Sequence[Mapping[str, Any]], where: str) -> None:
    """Raise a `UserError` with what Ray has when the machines are too few or too small."""
    resource = RESOURCES[device]
    counts = {node["NodeManagerHostname"] + f" ({node['NodeID'][:6]})": _count(node, resource) for node in nodes}
    if sum(count >= placement.per_node for count in counts.values()) >= placement.nodes:
        return
    has = ", ".join(f"{name} {count} {resource}s" for name, count in counts.items()) or "none"
    advice = "lower them, or add machines with `ray start --address=...`"
    if device == "cuda" and not any(counts.values()):
        advice += "; trainer.device=cpu trains without GPUs"
    raise UserError(
        f"{asked(placement)}: a run needs {placement.nodes} "
        f"machine{'s' if placement.nodes > 1 else ''} with {placement.per_node} {resource}s each, but {where} has "
        f"{len(counts)}: {has}; {advice}"
    )


def check_processes(placement: Placement, device: str) -> None:
    """Raise a `UserError` for more worker processes than the processors of this machine can start in time."""
    most = max(_FEWEST_PROCESSES, _PER_PROCESSOR * (os.cpu_count() or 1))
    if device == "cpu" and placement.size > most:
        raise UserError(
            f"{asked(placement)}: without GPUs each device is a process, and {os.cpu_count()} processors can take "
            f"{most} of them; lower both"
        )


def _count(node: Mapping[str, Any], resource: str) -> int:
    return int(node["Resources"].get(resource, 0))
