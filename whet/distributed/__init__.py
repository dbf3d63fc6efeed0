"""Groups of workers, one for each device: in this process, over Ray, or in the processes of torchrun.

Knows nothing of models or of what the workers do; `training/` brings the two together. Importing it imports neither Ray
nor torch: a worker process sets its environment first. Names are imported when they are asked for, so that a run on one
device reads none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.errors import WorkerLostError, WorkerRaisedError

if TYPE_CHECKING:
    from whet.distributed.activity import alive, waiting_for_ranks
    from whet.distributed.group import Factory, Group, Pending, Rank
    from whet.distributed.local import open_local
    from whet.distributed.placement import Placement
    from whet.distributed.ray_cluster import Cluster, open_ray
    from whet.distributed.store import open_store
    from whet.distributed.torchrun import TorchrunCluster

__all__ = [
    "Cluster",
    "Factory",
    "Group",
    "Pending",
    "Placement",
    "Rank",
    "TorchrunCluster",
    "WorkerLostError",
    "WorkerRaisedError",
    "alive",
    "open_local",
    "open_ray",
    "open_store",
    "waiting_for_ranks",
]
_MODULES = {
    "activity": ("alive", "waiting_for_ranks"),
    "group": ("Factory", "Group", "Pending", "Rank"),
    "local": ("open_local",),
    "placement": ("Placement",),
    "ray_cluster": ("Cluster", "open_ray"),
    "store": ("open_store",),
    "torchrun": ("TorchrunCluster",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"whet.distributed.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
