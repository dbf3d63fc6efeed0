"""The ends of the ranks that learn: links over which weights go to ranks that sample, by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from whet.distributed.weight_broadcast import Entry, Link, LinkLostError, Meeting, invite
from whet.learn.learner import LocalLearner
from whet.model.gathering import part
from whet.model.whole import full


class WeightSender:
    """Sends the policy from the first rank; all ranks take part in gathering what is sharded."""

    def __init__(self, learner: LocalLearner, first: bool, device: torch.device) -> None:
        """`device` is where receivers take weights."""
        self._learner, self._first, self._device = learner, first, device
        self._links: dict[str, Link] = {}
        self._invited: dict[str, tuple[torch.distributed.TCPStore, Meeting]] = {}
        self._table: list[Entry] = []
        self.current = False  # the weights are those of the version that was sent last

    def invite(self, name: str, table: Sequence[Entry], receivers: int) -> tuple[Meeting, list[str]] | None:
        """Open a rendezvous; return its address and the names of trained parameters."""
        parameters = dict(self._learner.model.named_parameters())
        assert [(each.name, each.shape) for each in table] == [(key, p.shape) for key, p in parameters.items()]
        self._table = list(table)
        if not self._first:
            return None
        self._links.pop(name, None)
        self._invited[name] = store, meeting = invite(receivers)
        del store
        return meeting, [key for key, p in parameters.items() if p.requires_grad]

    def open(self, name: str) -> bool:
        """Connect to those who were invited; False if one of them did not come."""
        if self._first:
            store, meeting = self._invited[name]
            try:
                self._links[name] = Link(store, 0, meeting.size, self._device)
            except LinkLostError:
                return False
        return True

    def send(self, name: str, version: int, everything: bool) -> bool:
        """Send the current weights, all or those that are trained; False if a receiver was lost meanwhile."""
        model = self._learner.model
        part(model)
        chosen = {key: p for key, p in model.named_parameters() if p.requires_grad or everything}
        gathered = ((key, full(p.detach())) for key, p in chosen.items())
        link, arrived = self._links.get(name), True
        with self._learner.offload.here():
            if link is not None:
                try:
                    link.send([entry for entry in self._table if entry.name in chosen], gathered, version)
                except LinkLostError:
                    del self._links[name], link  # which ends the others' waiting
                    arrived = False
            for _ in gathered:  # all ranks take part in gathering, and the first one sends
                pass
        self.current = True
        return arrived if self._first else True

    def send_again(self, name: str, version: int) -> bool:
        """Send all weights of a version that was sent before, to one who was not there; False if they have changed."""
        if self._first:
            try:
                self._links[name].announce(self.current)
            except LinkLostError:
                return False
        return self.current and self.send(name, version, everything=True)
