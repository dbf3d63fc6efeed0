"""The way of weights from the ranks that learn to replicas that come and go."""

from __future__ import annotations

from collections.abc import Sequence

from whet.distributed import Group, Pending
from whet.errors import WorkerLostError, WorkerRaisedError
from whet.training.replicas.replica import Replica

_ALL, _ONE = "all", "one"  # names of links


class ReplicaWeights:
    """Sends to all replicas by one broadcast, whose link is made anew when they change; and to one that is new.

    Calls must not overlap. A replica that is lost meanwhile breaks the broadcast for all: those that are left stand
    still, hold no version, and take part in the next one.
    """

    def __init__(self, learn: Group) -> None:
        self._learn = learn
        self._linked: list[Replica] = []

    def send(self, replicas: Sequence[Replica], version: int) -> bool:
        """Send the current weights; False if not all have them afterwards."""
        chosen = list(replicas)
        if self._linked != chosen:
            self._linked = []
            if not self._link(_ALL, chosen):
                return False
            self._linked = chosen
        everything = any(replica.held is None for replica in chosen)
        sending = self._learn.start("send_weights", _ALL, version, everything)
        arrived = _asked(chosen, "receive_weights", _ALL, version, everything)
        if not all(sending.wait()) or not all(arrived):
            self._linked = []
            return False
        for replica in chosen:
            replica.held = version
        return True

    def send_again(self, replica: Replica, version: int) -> bool:
        """Send what the others hold to one that has just come; False if the learner has gone on, or it was lost."""
        if not self._link(_ONE, [replica]):
            return False
        sending = self._learn.start("send_weights_again", _ONE, version)
        (arrived,) = _asked([replica], "receive_weights_again", _ONE, version)
        if not all(sending.wait()) or not arrived:
            return False
        replica.held = version
        return True

    def _link(self, name: str, replicas: Sequence[Replica]) -> bool:
        """Make a link to these replicas; False if one of them did not come."""
        try:
            table = next(each for each in replicas[0].group.call("table") if each is not None)
        except (WorkerLostError, WorkerRaisedError) as error:
            replicas[0].lose(error)
            return False
        meeting, trained = self._learn.call("invite_samplers", name, table, len(replicas))[0]
        opening = self._learn.start("open_link", name)
        pending = [
            (replica, _started(replica, "open_link", name, meeting, trained, index))
            for index, replica in enumerate(replicas, start=1)
        ]
        came = [_waited(replica, calls) for replica, calls in pending]
        return all(opening.wait()) and all(came)


def _asked(replicas: Sequence[Replica], method: str, *args: object) -> list[bool]:
    """Call a method of all replicas at once; False for those that could not finish it, or say so themselves."""
    pending = [(replica, _started(replica, method, *args)) for replica in replicas]
    return [_waited(replica, calls) for replica, calls in pending]


def _started(replica: Replica, method: str, *args: object) -> Pending | None:
    try:
        return replica.group.start(method, *args)
    except (WorkerLostError, RuntimeError) as error:  # closed by the thread that noticed
        replica.lose(error)
        return None


def _waited(replica: Replica, calls: Pending | None) -> bool:
    if calls is None:
        return False
    try:
        return all(result is not False for result in calls.wait())
    except WorkerRaisedError:  # the link broke: it is alive, and stands still
        replica.held = None
        return False
    except (WorkerLostError, RuntimeError) as error:
        replica.lose(error)
        return False
