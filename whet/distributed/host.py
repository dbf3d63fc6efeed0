"""The process of one rank: prepares itself, joins the others, builds the worker and makes its calls.

Ray runs these methods one after another on the main thread. torch is imported by `join` or by the factory, after the
environment is what it should be.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from whet.distributed import heartbeat
from whet.distributed.activity import Activity
from whet.distributed.failure import Outcome, failure_of
from whet.distributed.group import Rank
from whet.distributed.store import keep_to, open_store
from whet.system import groups
from whet.system.secret import SECRET_VARIABLE

STACK_SIGNAL = signal.SIGUSR1
# Other ranks may have to wait for one that writes a checkpoint; who is stuck is found out sooner by its heartbeat.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Setup:
    """Set-up of a rank, sent before anything else."""

    rank: Rank
    ranks_here: int  # on its machine, which share its cores
    caller: tuple[str, int]
    secret: str
    folder: str  # for what it prints and for its stack
    working_folder: str
    path: tuple[str, ...]  # sys.path of the caller
    environment: dict[str, str]


@dataclass(frozen=True)
class Introduction:
    """Identity of a rank's process: the leader of a group of its own, whatever Ray made it."""

    leader: groups.Leader
    node: str  # Ray's id of the machine
    address: str
    hostname: str


def reported(method: Callable[..., Any]) -> Callable[..., Outcome]:
    """Hand exceptions over as values: Ray would wrap them in a class and a text of its own."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Outcome:
        try:
            return Outcome(method(*args, **kwargs))
        except BaseException as error:  # sys.exit in a worker's method is a failure like any other
            return Outcome(failure=failure_of(error))

    return run


class Host:
    """One rank, from its start to its end."""

    def __init__(self) -> None:
        self._activity = Activity()
        self._setup: Setup | None = None
        self._store: Any = None
        self._worker: Any = None

    @reported
    def prepare(self, setup: Setup) -> Introduction:
        """Take the caller's environment, print into a file of this rank's own, and hold on to the caller."""
        import ray

        self._setup = setup
        # Some versions of Ray leave workers in the group of whoever started Ray, which may be the user's shell.
        leader = groups.lead()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who decides what becomes of us
        os.environ.update(setup.environment)
        os.environ[SECRET_VARIABLE] = setup.secret
        if "OMP_NUM_THREADS" not in setup.environment:  # Ray's own choice is one
            os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // setup.ranks_here))
        if os.path.isdir(setup.working_folder):
            os.chdir(setup.working_folder)
        sys.path += [entry for entry in setup.path if entry not in sys.path]
        self._print_to(Path(setup.folder), setup.rank.rank)
        heartbeat.hold(setup.caller, setup.secret, setup.rank.rank, self._activity.read)
        context = ray.get_runtime_context()
        return Introduction(leader, context.get_node_id(), ray.util.get_node_ip_address(), socket.gethostname())

    @reported
    def listen(self, address: str) -> int:
        """Open the store where ranks meet, on a port that is free; only the first rank does."""
        self._store = open_store(address)
        return self._store.port

    @reported
    def join(self, call: int, address: str, port: int, own_address: str) -> None:
        """Join the other ranks."""
        assert self._setup is not None
        with self._counted(call):
            rank = self._setup.rank
            os.environ.update(
                RANK=str(rank.rank),
                WORLD_SIZE=str(rank.world),
                LOCAL_RANK=str(rank.local_rank),
                LOCAL_WORLD_SIZE=str(self._setup.ranks_here),
                MASTER_ADDR=address,
                MASTER_PORT=str(port),
            )
            keep_to(own_address)
            from torch.distributed import TCPStore

            join(rank, self._store or TCPStore(address, port, is_master=False, timeout=COLLECTIVE_TIMEOUT))

    @reported
    def build(self, call: int, factory: bytes) -> None:
        """Make the worker."""
        assert self._setup is not None
        with self._counted(call):
            self._worker = pickle.loads(factory)(self._setup.rank)

    @reported
    def run(self, call: int, method: str, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        """Call the worker."""
        with self._counted(call):
            args, kwargs = arguments
            return getattr(self._worker, method)(*args, **kwargs)

    @reported
    def finish(self, call: int) -> None:
        """The worker's own `close`, where it has one."""
        with self._counted(call):
            if hasattr(self._worker, "close"):
                self._worker.close()

    @contextlib.contextmanager
    def _counted(self, call: int) -> Iterator[None]:
        self._activity.begin(call)
        try:
            yield
        finally:
            self._activity.end()

    def _print_to(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log_file(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        faulthandler.enable(2)  # a crash in native code leaves its stack among the prints
        self._stacks = open(stack_file(folder, rank), "ab", buffering=0)  # noqa: SIM115 - as long as the process
        faulthandler.register(STACK_SIGNAL, self._stacks, all_threads=True)


def join(rank: Rank, store: Any) -> None:
    """Join torch.distributed at a store where all ranks meet: gloo for the CPU, NCCL for a GPU."""
    import torch
    from torch.distributed import init_process_group

    on_gpu = rank.device != "cpu"
    if on_gpu:
        torch.cuda.set_device(rank.device)
    init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=store,
        rank=rank.rank,
        world_size=rank.world,
        timeout=COLLECTIVE_TIMEOUT,
    )


def log_file(folder: Path, rank: int) -> Path:
    """Return the path of a rank's output."""
    return folder / f"rank_{rank}.log"


def stack_file(folder: Path, rank: int) -> Path:
    """Return the path of a rank's stack dumps."""
    return folder / f"rank_{rank}.stack"
