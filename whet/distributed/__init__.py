"""Groups of workers, one for each device: in this process, over Ray, or in the processes of torchrun.

Knows nothing of models or of what the workers do; `run/` brings the two together. Importing it imports neither Ray nor
torch: a worker process sets its environment first.
"""

from whet.distributed.activity import alive, waiting_for_ranks
from whet.distributed.failure import WorkerLostError, WorkerRaisedError
from whet.distributed.group import Factory, Group, Pending, Rank
from whet.distributed.local import open_local
from whet.distributed.placement import Placement
from whet.distributed.ray_cluster import Cluster, open_ray
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
    "waiting_for_ranks",
]
