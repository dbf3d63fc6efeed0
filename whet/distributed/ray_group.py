"""A group of Ray actors, one process for each device, called together and watched while they work."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from whet.distributed.diagnostics import Diagnostics, Member, collect, end_processes
from whet.distributed.failure import Outcome
from whet.distributed.watch import Watch
from whet.errors import WorkerLostError

_LOOK_SECONDS = 0.2  # between two looks at the workers
_GRACE_SECONDS = 3.0  # for other ranks, when one has raised
_CLOSE_SECONDS = 10.0
_ASK_SECONDS = 20.0  # for another machine to tell what its ranks left


class RayPending:
    """A call under way on every rank."""

    def __init__(self, group: RayGroup, call: int, calls: list[Any]) -> None:
        self._group = group
        self._call = call
        self._calls = calls
        self._results: list[Any] | None = None

    def done(self) -> bool:
        """Return True if every rank has finished or failed."""
        import ray

        return self._results is not None or len(ray.wait(self._calls, num_returns=len(self._calls), timeout=0)[1]) == 0

    def wait(self) -> list[Any]:
        """The results by rank. Blocks until all ranks are done, one has raised, or one is dead or stuck."""
        if self._results is None:
            self._results = self._group.gather(self._call, self._calls)
        return self._results


class RayGroup:
    """Actors of `host.Host` that have joined each other; made by `Cluster.open`."""

    def __init__(
        self,
        actors: Sequence[Any],
        members: Sequence[Member],
        watch: Watch,
        folder: str,
        timeout: float | None,
        on_close: Callable[[], None],
        pool: str | None = None,
        all_groups: Sequence[RayGroup] = (),
    ) -> None:
        """`pool` is part of its ranks' names; `all_groups` of the same run are looked after at the same time."""
        self.size = len(actors)
        self._named = f"{pool} rank" if pool else "rank"
        self._all_groups = all_groups
        self.members = tuple(members)
        self._actors = list(actors)
        self._watch = watch
        self._folder = folder
        self._timeout = timeout
        self._on_close = on_close
        self._numbers = itertools.count(1)
        self._order = threading.Lock()  # all ranks are given the calls of several threads in one order
        self._closed = False
        self.failed = False  # ended before its time: what the ranks wrote is worth keeping
        self._lost: WorkerLostError | None = None

    def call(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """The same arguments to every rank; results by rank."""
        return self.start(method, *args, **kwargs).wait()

    def scatter(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One tuple of arguments for each rank; results by rank."""
        if len(arguments) != self.size:
            raise ValueError(f"{len(arguments)} tuples of arguments for {self.size} ranks")
        return self.begin("run", *((method, (tuple(args), {})) for args in arguments)).wait()

    def start(self, method: str, *args: Any, **kwargs: Any) -> RayPending:
        """Call a method on all ranks without waiting; the arguments are pickled once."""
        import ray

        self._check_open()
        arguments = ray.put((args, kwargs))
        return self.begin("run", *((method, arguments) for _ in self._actors))

    def begin(self, method: str, *arguments: tuple[Any, ...]) -> RayPending:
        """Start a method of the hosts themselves, with one tuple of arguments for each."""
        self._check_open()
        with self._order:
            call = next(self._numbers)
            calls = [getattr(actor, method).remote(call, *given) for actor, given in zip(self._actors, arguments)]
        return RayPending(self, call, calls)

    def gather(self, call: int, calls: list[Any]) -> list[Any]:
        """Wait for the outcomes of a call, looking after the workers meanwhile."""
        import ray

        outcomes: dict[int, Outcome] = {}
        deadline: float | None = None
        while len(outcomes) < self.size:
            self._check_open()
            waiting = {calls[rank]: rank for rank in range(self.size) if rank not in outcomes}
            ready = ray.wait(list(waiting), num_returns=len(waiting), timeout=_LOOK_SECONDS)[0]
            for reference in ready:
                try:
                    outcomes[waiting[reference]] = ray.get(reference)
                except ray.exceptions.RayActorError as error:
                    self._lose([waiting[reference]], f"died: {_cause(error)}")
            if deadline is None and any(outcome.failure for outcome in outcomes.values()):
                deadline = time.monotonic() + _GRACE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                break
            self._look(call, [rank for rank in range(self.size) if rank not in outcomes])
        return self._results(outcomes)

    def close(self) -> None:
        """End the workers, by their own `close` first, and whatever they started."""
        if self._closed:
            return
        with contextlib.suppress(Exception):  # they end in any case
            import ray

            calls = self.begin("finish", *([()] * self.size))._calls
            ray.wait(calls, num_returns=len(calls), timeout=_CLOSE_SECONDS)
        self._end()

    def kill(self) -> None:
        """End the workers at once, and whatever they started."""
        if not self._closed:
            self.failed = True
            self._end()

    def _end(self) -> None:
        import ray

        self._closed = True
        try:
            for actor in self._actors:
                with contextlib.suppress(Exception):  # Ray itself may be what broke
                    ray.kill(actor, no_restart=True)
            self._watch.close()
            self._sweep()
        finally:
            self._on_close()

    def look(self) -> None:
        """Raise `WorkerLostError` where a rank is gone, whether it had work or not."""
        if self._closed:
            return
        if dead := self._watch.dead():
            self._lose(dead, "died: the process ended without a word, as one does that was killed")
        if self._timeout is None:
            return
        if silent := self._watch.silent(self._timeout):
            self._lose(silent, f"gave no sign of life for {self._timeout:.0f} s")

    def _look(self, call: int, unfinished: list[int]) -> None:
        self.look()
        for group in self._all_groups:
            group.look()
        if self._timeout is None:
            return
        if stuck := self._watch.stuck(call, unfinished, self._timeout):
            self._lose(stuck, f"did nothing for {self._timeout:.0f} s in the middle of a call")

    def _results(self, outcomes: dict[int, Outcome]) -> list[Any]:
        """The values; or the first failure, after which a group whose other ranks wait for ever is ended."""
        failed = [(rank, outcome.failure) for rank, outcome in sorted(outcomes.items()) if outcome.failure]
        if not failed:
            return [outcomes[rank].value for rank in range(self.size)]
        for group in self._all_groups:
            if group is not self:
                group.look()  # whoever died there is why these could not go on
        if len(outcomes) < self.size:
            self.kill()
        rank, failure = failed[0]
        raise failure.error(rank, f"{self._named} {rank}")

    def _lose(self, ranks: list[int], why: str) -> None:
        """Hear everybody's last words, end them all, and say what happened."""
        words = self._words()
        lines = []
        for rank in ranks:
            member = self.members[rank]
            lines.append(f"{self._named} {rank} (process {member.pid} on {member.hostname}) {why}")
            lines.append(str(words.get(rank, Diagnostics())))
        for rank in (rank for rank in sorted(words) if rank not in ranks):
            stack = words[rank].stack
            lines.append(f"{self._named} {rank} was" + (":" if stack else " between calls"))
            lines.append(str(Diagnostics(stack=stack)))
        lines.append(f"prints and stacks of all ranks: {self._folder}/rank_*")
        if "died" not in why:
            lines.append("trainer.worker_timeout is how long that may take; -1 waits for ever")
        self._lost = WorkerLostError(ranks, "\n".join(line for line in lines if line))
        self.kill()
        raise self._lost

    def _words(self) -> dict[int, Diagnostics]:
        found: dict[int, Diagnostics] = {}
        for there, members in self._by_node():
            with contextlib.suppress(Exception):  # a machine that is gone says nothing
                found |= there(collect, members, self._folder)
        return found

    def _sweep(self) -> None:
        """Kill the rest of the workers' process groups, also of workers that died earlier."""
        for there, members in self._by_node():
            with contextlib.suppress(Exception):
                there(end_processes, [member.leader for member in members])

    def _by_node(self) -> list[tuple[Callable[..., Any], list[Member]]]:
        """A way to run a function on each machine, and the ranks there; this machine comes without Ray's help."""
        import ray

        here = ray.get_runtime_context().get_node_id()
        nodes: dict[str, list[Member]] = {}
        for member in self.members:
            nodes.setdefault(member.node, []).append(member)
        return [(_here if node == here else _there(node), members) for node, members in nodes.items()]

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise RuntimeError("the group is closed")


def _here(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _there(node: str) -> Callable[..., Any]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def run(function: Callable[..., Any], *args: Any) -> Any:
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        return ray.get(task.remote(*args), timeout=_ASK_SECONDS)

    return run


def _cause(error: Exception) -> str:
    """Return Ray's reason for a death, without its advice."""
    detail = str(error).partition("Worker exit detail: ")[2].partition(" Some common causes")[0].strip()
    if not detail or "End of file" in detail:
        return "the process ended without a word, as one does that was killed (the kernel does so when memory is short)"
    return os.linesep.join(detail.splitlines()[:3])
