"""Asynchronous training: groups are sampled and scored while the policy is updated.

A collector stays open from step to step. Every step hands in prompts ahead of their use, `steps_ahead` steps' worth,
and takes groups as they get ready. A token carries the version of the policy that drew it, so a group that was begun
under one policy and taken by a later update knows how old it is; none is older than `trainer.max_staleness`.

The engine draws no token while the policy is computed with or changed, unless it has devices of its own: samples wait
and go on with the new weights. Rewards are computed all the while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whet.config import Config
from whet.errors import RewardsFailedError
from whet.rollout.collector import Collector
from whet.training.batch import Batch, BatchMaker, Draws, groups_per_step
from whet.training.device import choose_placement, is_distributed
from whet.training.measure import StepClock
from whet.training.pending import Waiting, load_waiting, save_waiting
from whet.training.rollouts import Rollouts, sampling_params
from whet.training.schedule import Schedule
from whet.training.staleness import choose
from whet.training.update_memory import UpdateMemory
from whet.types import Group, Sample

if TYPE_CHECKING:
    from whet.data.loader import PromptLoader
    from whet.tracking.console import Console
    from whet.training.state import TrainerState
    from whet.types import Prompt


class Flow(BatchMaker):
    """Makes batches of groups that are being sampled and scored all the time."""

    def __init__(
        self,
        rollouts: Rollouts,
        loader: PromptLoader[Prompt],
        state: TrainerState,
        console: Console,
        schedule: Schedule,
        steps_left: Callable[[], int],
    ) -> None:
        """`steps_left` counts the steps of the run that are still to be taken, the current one included."""
        super().__init__(rollouts, loader, state, console)
        rollouts.stays_open = True
        self._prompts, self._schedule, self._steps_left = loader, schedule, steps_left
        self._config = rollouts.config
        self._collector: Collector | None = None
        self._waiting: dict[int, Waiting] = {}  # by number: handed in, and not trained on yet
        self._rows: list[int] = []  # drawn from the loader, and not handed in yet
        self._ready: list[Waiting] = []  # scored before a checkpoint was written, and read from it
        self._taken: list[Waiting] = []  # by the step that is being made
        self._seconds = (0.0, 0.0)  # of sampling and scoring, at the end of the latest step
        self._learning = 0.0  # seconds in which the engine stood still, since the latest step was measured
        self._ended = time.perf_counter()
        device = choose_placement(self._config).device
        here = device.type == "cuda" and not is_distributed(self._config)  # else updates use memory of other processes
        self._memory = UpdateMemory(device) if here else None

    def make(self, config: Config, clock: StepClock) -> Batch:
        """Return the batch of the next step, and log which groups it takes."""
        self._taken = []
        batch = super().make(config, clock)
        self._schedule.write(self._state.step, [each.record() for each in self._taken])
        batch.metrics |= staleness(batch.samples, self._rollouts.engine.version) | self._load(clock)
        self._taken = []
        return batch

    def draw(self, config: Config, clock: StepClock, draws: Draws, missing: int) -> list[Group]:
        """Hand in prompts for this step and those ahead, and take the groups that are ready first."""
        self._config = config
        wanted = min(missing, config.data.mini_rollout_batch_size or missing)
        restored, self._ready = self._ready[:wanted], self._ready[wanted:]
        ahead = min(config.trainer.steps_ahead or config.trainer.max_staleness, self._steps_left() - 1)
        self._hand_in(wanted + ahead * groups_per_step(config) - len(restored))
        with clock.stage("rollout", wanted * config.worker.rollout.n) as advance:
            taken = restored + self._take(wanted - len(restored), advance)
        self._taken += taken
        return self.note(config, draws, [each.group for each in taken if each.group is not None])

    @contextmanager
    def still(self) -> Iterator[None]:
        """Keep the engine from drawing tokens inside the context, unless it samples on devices of its own."""
        engine, begun = self._rollouts.engine, time.perf_counter()
        if samples_elsewhere(self._config, engine.capabilities.external):
            yield
            return
        with engine.pause(), self._memory.measured() if self._memory else nullcontext():
            if self._recomputes():
                engine.abort()
            engine.release()
            yield
        self._learning += time.perf_counter() - begun

    def _recomputes(self) -> bool:
        """Return True if samples in flight give their cache's memory to the update and compute it anew."""
        asked = self._config.worker.rollout.recompute_cache
        if asked is not None:
            return asked
        if self._memory is not None:
            return not self._memory.fits()
        return choose_placement(self._config).device.type == "cuda"

    @contextmanager
    def rewound_on_failure(self) -> Iterator[None]:
        """Sample the groups of a step anew if a `RewardsFailedError` is raised inside the context."""
        empty = self._state.empty_steps
        try:
            yield
        except RewardsFailedError:
            self._state.step -= 1
            self._state.empty_steps = empty
            for each in self._taken:
                each.group = None
            self._ready, self._taken = self._taken + self._ready, []
            raise

    def configure(self, config: Config) -> None:
        """Sample everything anew that waits, under the settings of another stage."""
        if self._collector is None:
            return
        rows = [each.row for each in [*self._ready, *self._waiting.values()]]
        self.close()
        self._config, self._ready, self._waiting = config, [], {}
        self._submit(rows)

    def save(self, folder: Path) -> None:
        """Write what was handed in: groups that are ready, and the rows and sample ids of the others."""
        ready = {group.samples[0].group: group for group in self._collector.ready} if self._collector else {}
        for each in self._waiting.values():
            each.group = ready.get(each.ids.start)
        save_waiting([*self._ready, *self._waiting.values()], self._rows, folder / "waiting.json")

    def load(self, folder: Path) -> None:
        """Go on with what a checkpoint holds; what was not ready is sampled from its beginning."""
        self._schedule.forget_after(self._state.step)
        if (folder / "waiting.json").exists():
            waiting, self._rows = load_waiting(folder / "waiting.json", self._prompts)
            self._ready = [each for each in waiting if each.group is not None]
            anew = [each for each in waiting if each.group is None]
            for each in anew:
                each.version = self._rollouts.engine.version
            self._resubmit(anew)

    def close(self) -> None:
        """End what is in flight."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None

    def _hand_in(self, wanted: int) -> None:
        """Hand in prompts until so many groups are on their way."""
        missing = max(0, wanted - len(self._waiting))
        while len(self._rows) < missing:
            self._rows += self._prompts.next_rows()
        rows, self._rows = self._rows[:missing], self._rows[missing:]
        if rows:
            self._submit(rows)

    def _submit(self, rows: list[int]) -> None:
        n, first = self._config.worker.rollout.n, self._state.samples_drawn
        version = self._rollouts.engine.version
        self._state.samples_drawn += len(rows) * n
        ids = [range(first + i * n, first + (i + 1) * n) for i in range(len(rows))]
        self._resubmit([Waiting(row, each, version) for row, each in zip(rows, ids)])

    def _resubmit(self, waiting: list[Waiting]) -> None:
        if not waiting:
            return
        rows = [each.row for each in waiting]
        tickets = self._open().submit(rows, self._prompts.prompts(rows), [each.ids for each in waiting])
        self._waiting |= {ticket.number: each for ticket, each in zip(tickets, waiting)}

    def _take(self, count: int, advance: Callable[[int], None]) -> list[Waiting]:
        """Take so many groups as they get ready; those that would be too old for the next step come first."""
        if count <= 0:
            return []
        collector, version = self._open(), self._rollouts.engine.version
        if self._config.trainer.on_stale == "drop" and not self._scores_batches:
            self._renew_late(collector, version)
        choose = partial(self._choose, count, version)
        groups = collector.take(count, progress=advance, choose=choose)
        by_group = {each.ids.start: number for number, each in self._waiting.items()}
        taken = []
        for group in groups:
            each = self._waiting.pop(by_group[group.samples[0].group or 0])
            each.group = group
            taken.append(each)
        return taken

    def _choose(self, count: int, version: int, ready: list[int]) -> list[int] | None:
        """Choose the groups to take of those that are ready, or None to wait for older ones."""
        ages = {number: version - each.version for number, each in self._waiting.items()}
        return choose(count, ages, ready, self._config.trainer.max_staleness, groups_per_step(self._config))

    def _renew_late(self, collector: Collector, version: int) -> None:
        """Drop what was sampled of groups that are not ready and would be too old for the next step."""
        done = {group.samples[0].group for group in collector.ready}
        bound = self._config.trainer.max_staleness
        numbers = [
            number
            for number, each in self._waiting.items()
            if version - each.version > bound or (version - each.version == bound and each.ids.start not in done)
        ]
        if numbers:
            collector.renew(numbers)
            for number in numbers:
                self._waiting[number].version = version

    @property
    def _scores_batches(self) -> bool:
        scorer = self._rollouts.scorer
        return scorer is not None and scorer.scores_batches()

    def _open(self) -> Collector:
        if self._collector is None:
            config = self._config
            params = sampling_params(config.worker.rollout, config.data.max_response_length)
            self._collector = self._rollouts.collector(params)
            self._seconds = (0.0, 0.0)
        return self._collector

    def _load(self, clock: StepClock) -> dict[str, float]:
        """Return what waited for what since the latest step, as shares of the time, and how much is on its way."""
        collector, now = self._open(), time.perf_counter()
        passed = max(now - self._ended, 1e-9)
        before, self._seconds = self._seconds, collector.seconds
        sampling, scoring = (after - earlier for after, earlier in zip(self._seconds, before))
        stood, self._learning, self._ended = self._learning, 0.0, now
        return {
            "async/learner_idle": min(1.0, clock.seconds.get("rollout", 0.0) / passed),
            "async/sampler_idle": min(1.0, max(0.0, 1 - max(0.0, sampling - stood) / passed)),
            "async/rewards_idle": min(1.0, max(0.0, 1 - scoring / passed)),
            "async/ready": len(collector.ready) + len(self._ready),
            "async/in_flight": collector.in_flight,
        }


def samples_elsewhere(config: Config, external: bool) -> bool:
    """Return True if the engine samples on devices that nothing else uses, and may go on during an update."""
    return external or config.trainer.placement.rollout is not None


def staleness(samples: list[Sample], version: int) -> dict[str, float]:
    """Return how many updates the policy has seen since each token of a batch was drawn, as metrics."""
    ages = [version - wrote for sample in samples for wrote in sample.versions if wrote >= 0]
    if not ages:
        return {}
    mixed = sum(len({wrote for wrote in sample.versions if wrote >= 0}) > 1 for sample in samples)
    return {
        "async/staleness_mean": sum(ages) / len(ages),
        "async/staleness_max": max(ages),
        "async/stale_tokens": sum(age > 0 for age in ages) / len(ages),
        "async/mixed_samples": mixed / len(samples),
    }
