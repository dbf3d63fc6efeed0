"""What torchrun tells a process of its job: which one it is, and when to end; and what follows for a command."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from whet.errors import UserError

if TYPE_CHECKING:
    from whet.config.trainer import TrainerConfig

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SPEAK_SECONDS = 10.0  # for another process to say why the job ends


@dataclass(frozen=True)
class Launch:
    """What torchrun told this process."""

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


def take_devices(trainer: TrainerConfig, launch: Launch) -> None:
    """Let the config ask for the devices that torchrun decided on; 1, the default, leaves them to it."""
    if launch.world % launch.local_world:
        raise UserError(
            f"torchrun started {launch.world} processes in all and {launch.local_world} on this machine: give every "
            "machine the same --nproc_per_node"
        )
    started = {"n_gpus_per_node": (launch.local_world, "--nproc_per_node"), "nnodes": (launch.nodes, "--nnodes")}
    for key, (count, option) in started.items():
        asked = getattr(trainer, key)
        if asked not in (1, count):
            raise UserError(
                f"trainer.{key}={asked}, but torchrun was started with {option} {count}: leave the key out, since "
                f"torchrun decides, or start it with {option} {asked}"
            )
        setattr(trainer, key, count)


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


class Patience:
    """Of a process that ends badly but has nothing to say: if it were the first to end, torchrun would end the one that
    is about to speak. From the first one on, torchrun's signals are only remembered."""

    told = False  # by torchrun to end, as all are when another process has ended

    def __init__(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def wait(self) -> None:
        """Until torchrun tells this process to end, or a while."""
        end = time.monotonic() + _SPEAK_SECONDS
        while not Patience.told and time.monotonic() < end:
            time.sleep(0.05)

    def lose(self) -> None:
        """End by a signal again."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    @staticmethod
    def _hear(number: int, frame: FrameType | None) -> None:
        Patience.told = True


def say(text: str) -> None:
    """Print an error once on a machine, where every process of the job has the same to say."""
    if is_silent():
        Patience().wait()
    else:
        # A message may quote a file, and half a surrogate pair of it cannot be printed.
        print(text.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)


def is_silent() -> bool:
    """Whether another process on this machine speaks for this one."""
    launch = launched()
    return launch is not None and launch.local_rank > 0
