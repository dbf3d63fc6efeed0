"""Groups of workers, one for each device: in this process, over Ray, or in the processes of torchrun.

Knows nothing of models or of what the workers do; `run/` brings the two together. Importing it imports neither Ray nor
torch: a worker process sets its environment first.
"""

from whet.cluster.failure import WorkerLostError, WorkerRaisedError
from whet.cluster.group import Factory, Group, Pending, Rank
from whet.cluster.local import open_local
from whet.cluster.placement import Placement
from whet.cluster.pulse import alive, waiting_for_ranks
from whet.cluster.ray_cluster import Cluster, open_ray
from whet.cluster.store import open_store
from whet.cluster.torchrun import TorchrunCluster

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
