"""What each process does in tests of the link: the first sends, the others receive."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from whet.distributed import weight_broadcast
from whet.distributed.weight_broadcast import Link, invite, table_of

CPU = torch.device("cpu")


def weights(seed: int) -> dict[str, Tensor]:
    """Tensors of several dtypes and shapes, of which a bucket of 100 bytes holds one or two."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {"a": (5, 3), "b": (7,), "scalar": (), "empty": (0, 4), "last": (20,)}
    made = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    return made | {"b": made["b"].bfloat16()}


def exchange(sent_version: int, wanted: int, damaged: bool) -> Any:
    """Two updates; what arrived, or the error that a receiver raised."""
    weight_broadcast.BUCKET_BYTES = 100
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    rank, world = dist.get_rank(), dist.get_world_size()
    place: list[Any] = [None]
    if rank == 0:
        store, place[0] = invite(world - 1)
    dist.broadcast_object_list(place, 0)
    end = Link(store, 0, world, CPU) if rank == 0 else Link.join(place[0], rank, CPU)
    held = {name: torch.zeros_like(tensor) for name, tensor in weights(0).items()}
    table = table_of(held.items())
    if rank == 0:
        end.send(table, weights(1).items(), 1)
        end.send([entry for entry in table if entry.name in "ab"], list(weights(2).items())[:2], sent_version)
        return None
    end.receive(table, held, 1)
    first = {name: tensor.clone() for name, tensor in held.items()}
    if damaged:
        flip = end._broadcast
        end._broadcast = lambda flat: (flip(flat), flat.view(torch.uint8)[:1].add_(1))
    try:
        end.receive([entry for entry in table if entry.name in "ab"], held, wanted)
    except RuntimeError as error:
        return str(error)
    return first, held
