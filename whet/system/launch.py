"""Rank of a process that torchrun started, which commands may run under it, and which process speaks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from whet.errors import UserError

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Launch:
    """Rank of this process as torchrun set it."""

    rank: int
    world: int
    local_rank: int
    local_world: int  # processes on this machine

    @property
    def nodes(self) -> int:
        """Machines, with as many processes each."""
        return self.world // self.local_world


def launched() -> Launch | None:
    """This process' place in torchrun's job; None where torchrun did not start it."""
    found = [os.environ.get(name, "") for name in _VARIABLES]
    return Launch(*map(int, found)) if all(found) else None


def refuse_command(name: str) -> None:
    """Raise a `UserError` where torchrun has started a command several times that is made to be started once."""
    launch = launched()
    if launch is not None and launch.world > 1:
        hint = (
            "; trainer.n_gpus_per_node and trainer.nnodes say on how many devices Ray runs it"
            if name == "train"
            else ""
        )
        raise UserError(f"whet {name} does not run under torchrun: start it once, without torchrun{hint}")


def say(text: str) -> None:
    """Print an error once on a machine, where every process of the job has the same to say."""
    if is_silent():
        from whet.system.patience import Patience

        Patience().wait()
    else:
        # A message may quote a file, and half a surrogate pair of it cannot be printed.
        print(text.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)


def is_silent() -> bool:
    """Return True if another process of this machine prints for this one."""
    launch = launched()
    return launch is not None and launch.local_rank > 0
