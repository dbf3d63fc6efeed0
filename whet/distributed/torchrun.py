"""The ranks that torchrun has started: the first runs the job, the others serve its calls.

Every process was given the same command. The first one has the data, the run folder and the loop, and calls the group
as it would over Ray; the others wait for its calls, which travel by gloo. Nobody is watched here: gloo tells the others
at once when a process has ended, and torchrun then ends them all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

from whet.distributed.failure import failure_of
from whet.distributed.group import Factory, Rank
from whet.distributed.host import COLLECTIVE_TIMEOUT, join
from whet.distributed.local import Finished
from whet.distributed.store import LOOPBACK, keep_to, open_store
from whet.errors import UserError, WorkerLostError
from whet.system import secret
from whet.system.launch import Launch
from whet.system.patience import Patience
from whet.system.secret import SECRET_VARIABLE

_IDLE_TIMEOUT = timedelta(days=7)  # between two calls the first rank reads data, for as long as that takes
_GRACE_SECONDS = 3.0  # for the first rank to say that the job ends
_NEWS_SECONDS = 1.0  # for gloo to tell that another rank ended
_ENDED = "ended"


@dataclass(frozen=True)
class Call:
    """A method for every rank's worker."""

    method: str
    arguments: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]  # one for all ranks, or one for each


@dataclass(frozen=True)
class End:
    """The first rank has ended, with this exit code."""

    code: int


class Seat:
    """This process among the others: torch.distributed is joined, and a worker may be built."""

    def __init__(self, launch: Launch, device: str) -> None:
        from torch import distributed

        self.rank = Rank(
            launch.rank, launch.world, launch.local_rank, launch.rank // launch.local_world, _device(device, launch)
        )
        if launch.nodes == 1:
            keep_to(LOOPBACK)
            os.environ.setdefault(SECRET_VARIABLE, secret.of_this_machine())
        store = _store(launch)
        # torchrun may have restarted the job, and kept what the last one wrote into its store.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = distributed.PrefixStore(f"whet/{attempt}", store)
        join(self.rank, distributed.PrefixStore("ranks", self._store))
        self._calls = distributed.new_group(backend="gloo", timeout=_IDLE_TIMEOUT)
        self._worker: Any = None

    def shared(self, order: Call | End | Factory | None = None) -> Call | End | Factory:
        """Broadcast the first rank's call to every rank."""
        from whet.system import sealed

        given = sealed.broadcast(order, self._calls)
        assert given is not None, "the first rank orders something"
        return given

    def obey(self, order: Call | Factory) -> list[Any]:
        """Build the worker or call it; the first rank gets the results of all ranks."""
        from whet.system import sealed

        result = None
        if isinstance(order, Call):
            args, kwargs = order.arguments[min(self.rank.rank, len(order.arguments) - 1)]
            result = getattr(self._worker, order.method)(*args, **kwargs)
        else:
            self._worker = order(self.rank)
        return sealed.gather(result, self._calls) or []

    def say_ended(self, code: int) -> None:
        """Leave word for ranks that are in the middle of a call."""
        with contextlib.suppress(RuntimeError):  # whoever kept the store is gone
            self._store.set(_ENDED, str(code))

    def heard_end(self) -> int | None:
        """The exit code of the first rank, if it said that it ended; waits for it a moment."""
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(RuntimeError):  # whoever kept the store is gone
            while time.monotonic() < end:
                if self._store.check([_ENDED]):
                    return int(self._store.get(_ENDED))
                time.sleep(0.05)
        return None

    def leave(self) -> None:
        """Part in peace: all ranks are between two calls."""
        from torch import distributed

        if hasattr(self._worker, "close"):
            self._worker.close()
        distributed.destroy_process_group()


class TorchrunCluster:
    """All processes of the job as its first one sees them; when it leaves, the others end with the same exit code."""

    def __init__(self, launch: Launch, device: str) -> None:
        self._seat = Seat(launch, device)
        self.device = self._seat.rank.device.partition(":")[0]
        self._in_step = True  # no rank is in the middle of a call
        self._failed = False
        self._before = signal.signal(signal.SIGTERM, self._terminate)

    def open(self, factory: Factory) -> TorchrunGroup:
        """A worker on every rank."""
        self.order(factory)
        return TorchrunGroup(self, self._seat.rank.world)

    def order(self, order: Call | Factory) -> list[Any]:
        """Have every rank, this one too, do the same; results by rank."""
        self._in_step = False
        try:
            self._seat.shared(order)
            results = self._seat.obey(order)
        except Exception as error:
            self._failed = True
            if _is_loss(error):
                doing = f"`{order.method}`" if isinstance(order, Call) else "its start"
                raise WorkerLostError(
                    [],
                    f"another rank ended in the middle of {doing}: it says why above, or torchrun does below "
                    f"({_short(error)})",
                ) from error
            raise failure_of(error).error(0) from error
        self._in_step = True
        return results

    def __enter__(self) -> TorchrunCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = exit_code(error)
        self._failed = error is not None
        self._seat.say_ended(code)
        if self._in_step:
            with contextlib.suppress(RuntimeError):  # another rank was killed meanwhile
                self._seat.shared(End(code))
                self._seat.leave()
        if error is None:
            signal.signal(signal.SIGTERM, self._before)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Stop; but a moment later, since torchrun also sends this when it has seen another rank end."""
        signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, _NEWS_SECONDS)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self._failed:  # then this process is on its way out, and tells why
            raise KeyboardInterrupt


class TorchrunGroup:
    """The workers on all ranks of the job, this process' own among them."""

    def __init__(self, cluster: TorchrunCluster, size: int) -> None:
        self._cluster, self.size = cluster, size

    def call(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """The same arguments to every rank; results by rank."""
        return self._cluster.order(Call(method, [(args, kwargs)]))

    def scatter(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One tuple of arguments for each rank; results by rank."""
        if len(arguments) != self.size:
            raise ValueError(f"{len(arguments)} tuples of arguments for {self.size} ranks")
        return self._cluster.order(Call(method, [(tuple(args), {}) for args in arguments]))

    def start(self, method: str, *args: Any, **kwargs: Any) -> Finished:
        """The call is over when this returns: this process is one of the ranks."""
        return Finished(self.call(method, *args, **kwargs))

    def look(self) -> None:
        """Do nothing: torchrun ends all ranks when one is gone."""

    def close(self) -> None:
        """The workers end with the job."""


def serve_first(launch: Launch, device: str) -> int:
    """Execute the calls of the first rank until it has ended, on every other rank; return the exit code."""
    patience = Patience()
    if patience.told:
        return 1  # whoever ended will not join
    patience.lose()
    seat = Seat(launch, device)
    patience = Patience()  # torchrun passes signals to all ranks; the first decides what follows
    try:
        while not isinstance(order := seat.shared(), End):
            seat.obey(order)
        seat.leave()
        code = order.code
    except Exception as error:
        ended = seat.heard_end()
        if ended is None and not _is_loss(error):  # the others wait for this rank, and cannot know why
            print(f"whet: {failure_of(error).error(launch.rank)}", file=sys.stderr, flush=True)
            return exit_code(error)
        code = ended or 1
    if code:
        patience.wait()
    return code


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of a process that raised this, as the command line has it."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, UserError) else int(error is not None)


def _store(launch: Launch) -> Any:
    """The store where the job's processes meet: torchrun's own, or one that the first process opens.

    torch would open it on all networks.
    """
    from torch import distributed

    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if launch.rank == 0 and address and port.isdecimal() and not agent:
        return open_store(address, int(port))
    return next(distributed.rendezvous("env://", timeout=COLLECTIVE_TIMEOUT))[0]


def _device(wanted: str, launch: Launch) -> str:
    """Return this rank's device by `trainer.device` and the machine."""
    import torch

    count = 0 if wanted == "cpu" else torch.cuda.device_count()
    if wanted != "cuda" and not count:
        return "cpu"
    if not count:
        raise UserError("trainer.device=cuda: torch sees no CUDA device here; set trainer.device=cpu or auto")
    if count < launch.local_world:
        raise UserError(
            f"torchrun started {launch.local_world} processes on this machine, where torch sees {count} GPUs: start it "
            "with fewer (--nproc_per_node), or set trainer.device=cpu"
        )
    return f"cuda:{launch.local_rank}"


def _is_loss(error: Exception) -> bool:
    """Return True if the error means that another process ended; gloo has no class for it."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (type(error) is RuntimeError and "gloo" in str(error).lower())


def _short(error: Exception) -> str:
    """Return an error's text without gloo's advice."""
    return str(error).partition("\n")[0].partition(". ")[0]
