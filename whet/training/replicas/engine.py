"""The `Engine` of several replicas: every request goes to one of them, and one that dies is replaced.

Requests go to the replica with the fewest samples to write; a sample that is continued goes to where its keys and
values were kept. What a lost replica had not finished is sampled by others from its start, under the same sample ids.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from whet.config import Config
from whet.distributed import Group
from whet.rollout.blocking import run_blocking
from whet.rollout.engine import EngineGoneError, Piece, Progress, SamplingParams, Start, Weights, ids_of
from whet.rollout.spec import engine_can
from whet.rollout.whole import stream_whole
from whet.training.replicas.replica import Replica, ReplicaLostError
from whet.training.replicas.weights import ReplicaWeights
from whet.types import Prompt, Sample

_LOOK = 0.05  # seconds between two looks for a replica that serves
_MOST_HOMES = 100_000  # samples of which it is remembered where they were kept

Open = Callable[[int], Group]  # the group of the replica of this number


class ReplicaEngine:
    """Several engines as one."""

    def __init__(self, config: Config, learn: Group, open_one: Open, count: int, warn: Callable[[str], None]) -> None:
        self.version = 0
        self.capabilities = replace(engine_can(config), concurrent=True, streams=False)
        self._open_one, self._warn = open_one, warn
        self._left = config.worker.rollout.max_restarts
        self._weights = ReplicaWeights(learn)
        self._sending = threading.RLock()  # whoever sends weights
        self._state = threading.Lock()
        self._opening: set[int] = set()  # numbers of replicas that are being opened
        self.most = self._wanted = count
        self._gone: str | None = None
        self._closing = False
        self._homes: OrderedDict[int, Replica] = OrderedDict()
        with ThreadPoolExecutor(count) as pool:
            groups = list(pool.map(open_one, range(count)))
        self._replicas = [Replica(number, group, self._on_lost) for number, group in enumerate(groups)]

    @property
    def failure(self) -> str | None:
        """The end of the last replica, once none is left and none will be opened."""
        return self._gone

    @property
    def serving(self) -> list[Replica]:
        """The replicas that hold weights."""
        return [replica for replica in self._replicas if replica.held is not None]

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""

        async def one(start: Start, sample_id: int) -> list[Sample]:
            samples = await self.sample(start, params, sample_id)
            if progress is not None:
                progress(len(samples))
            return samples

        async def every() -> list[list[Sample]]:
            ids = ids_of(prompts, params, sample_ids)
            return await asyncio.gather(*(one(start, each) for start, each in zip(prompts, ids, strict=True)))

        return [sample for samples in run_blocking(every()) for sample in samples]

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start, by whichever replica lives to finish them."""
        while True:
            replica = await self._chosen(sample_id)
            try:
                samples = await replica.sample(prompt, params, sample_id)
            except ReplicaLostError:
                continue
            for sample in samples:
                sample.prompt = prompt if isinstance(prompt, Prompt) else prompt.prompt  # not a copy of it
            if params.keep:
                self._remember(sample_id, replica)
            return samples

    def stream(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        parts: bool = True,
    ) -> AsyncIterator[Piece]:
        """Yield whole samples."""
        return stream_whole(self, prompts, params, sample_ids)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep replicas from being sent weights inside the context; they stand still by themselves when they are."""
        with self._sending:
            yield

    def load_weights(self, weights: Weights, version: int) -> None:
        """Have the learner send its weights to all replicas; one that is lost meanwhile does not keep the others."""
        with self._sending:
            self.version = version
            while True:
                if living := [replica for replica in self._replicas if not replica.lost]:
                    if self._weights.send(living, version):
                        return
                elif self._gone is not None:
                    raise EngineGoneError(self._gone)
                else:
                    self._wait_for_one()

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """End samples that are being written, all or those of some ids."""
        for replica in self._replicas:
            replica.abort(sample_ids)

    def release(self) -> None:
        """Do nothing: the devices of replicas are theirs alone."""

    def resize(self, count: int) -> None:
        """Have so many replicas from now on, at most as many as the run was given devices for."""
        wanted = max(1, min(count, self.most))
        with self._state:
            self._wanted = wanted
            added = [each for each in self._replicas[:wanted] if each.lost and each.number not in self._opening]
            self._opening |= {each.number for each in added}
        for replica in self._replicas[wanted:]:
            replica.lose(ReplicaLostError("it was asked to leave"))
        for lost in added:
            self._open_in_thread(lost)

    def close(self) -> None:
        """Let go of the replicas; their groups end with the cluster."""
        self._closing = True
        for replica in self._replicas:
            replica.close()

    async def _chosen(self, sample_id: int) -> Replica:
        """Wait for a replica that serves, and choose one."""
        while True:
            if self._gone is not None:
                raise EngineGoneError(self._gone)
            home = self._homes.get(sample_id)
            if home is not None and home.held is not None:
                return home
            if serving := self.serving:
                return min(serving, key=lambda each: (each.load, each.number))
            await asyncio.sleep(_LOOK)

    def _remember(self, sample_id: int, replica: Replica) -> None:
        self._homes[sample_id] = replica
        self._homes.move_to_end(sample_id)
        while len(self._homes) > _MOST_HOMES:
            self._homes.popitem(last=False)

    def _wait_for_one(self) -> None:
        """Let a replica that has been opened take its place."""
        self._sending.release()
        try:
            threading.Event().wait(_LOOK)
        finally:
            self._sending.acquire()

    def _on_lost(self, lost: Replica, error: Exception) -> None:
        """Open another in its place, in a thread: the caller may be sending weights to those that are left."""
        if self._closing or lost.number >= self._wanted:
            return
        said = str(error).splitlines()[0]
        with self._state:
            if self._left == 0:
                if not self._opening and all(replica.lost for replica in self._replicas):
                    self._gone = f"no replica of the engine is left, and worker.rollout.max_restarts is used up: {said}"
                left = None
            else:
                self._left -= 1
                self._opening.add(lost.number)
                left = self._left
        if left is None:
            self._warn(f"{said}\nThe run goes on without it: worker.rollout.max_restarts is used up.")
            return
        self._warn(f"{said}\nAnother one takes its place; restarts left: {left}.")
        self._open_in_thread(lost)

    def _open_in_thread(self, lost: Replica) -> None:
        threading.Thread(target=self._replace, args=(lost,), name="replica-opening", daemon=True).start()

    def _replace(self, lost: Replica) -> None:
        try:
            group = self._open_one(lost.number)
        except Exception as error:
            with self._state:
                self._opening.discard(lost.number)
            self._on_lost(lost, error)
            return
        with self._sending:
            replica = Replica(lost.number, group, self._on_lost)
            self._replicas[lost.number] = replica
            with self._state:
                self._opening.discard(lost.number)
            if lost.number >= self._wanted:  # while it was being opened
                replica.lose(ReplicaLostError("it was asked to leave"))
            elif not self._closing:
                self._weights.send_again(replica, self.version)  # else the next version is its first
