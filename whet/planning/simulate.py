"""Simulate sampling and learning as events: the step time of a placement, from costs and lengths of responses.

One loop plays every placement. Engines decode groups of samples; a finished group is scored and enters a buffer; the
learner takes a batch of groups, by the rule of asynchronous training, and makes the next version of the weights.

- colocated: engines and learner share all devices, so the learner waits for the last group and engines for the learner;
- in turns: the same devices, `ahead` batches ahead; engines stand still during an update and then go on;
- one-step-off: devices apart, one batch ahead; engines finish what they decode before they take new weights;
- asynchronous: devices apart, `ahead` batches ahead; new weights arrive in the middle of responses.

A group may start while fewer than (version + ahead + 1) · batch groups have started. The learner takes groups in the
order in which they are ready, and waits for older ones where they could not be taken within `staleness` otherwise.
Everything is a function of the arguments: no clocks, no global random numbers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from whet.planning.decoding import DecodeCost
from whet.training.staleness import choose


@dataclass(frozen=True, slots=True)
class UpdateCost:
    """Seconds of an update on all learners together: fixed + per_token · packed tokens."""

    fixed: float
    per_token: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A placement and its costs."""

    engines: int  # replicas that sample
    decode: DecodeCost  # of each
    update: UpdateCost
    batch: int  # groups of a step
    samples: int  # of a group
    slots: int  # sequences that an engine decodes at once
    prompt: float  # tokens
    apart: bool = False  # engines have devices of their own
    staleness: int = 0
    ahead: int | None = None  # batches that are sampled ahead; None is `staleness`
    partial: bool = False  # weights arrive in the middle of responses
    recompute_cache: bool = False  # keys and values are computed again with new weights
    resumed: float = 0.0  # seconds of the host for each sample that is interrupted by that and goes on
    sync: float = 0.0  # seconds in which new weights reach the engines
    reward: float = 0.0  # seconds from a group's last token to its rewards

    @property
    def batches_ahead(self) -> int:
        """Batches that are sampled ahead."""
        return self.staleness if self.ahead is None else min(self.ahead, self.staleness)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Result of a simulation; the first steps, which fill the buffer, do not count."""

    step: float  # mean seconds of a step
    steps: tuple[float, ...]
    engines_idle: float  # share of the engines' time in which nothing is decoded
    learner_idle: float
    staleness: float  # mean versions between the first token of a sample and its use
    oldest: int  # the most of these
    tokens_per_s: float  # of responses


@dataclass(slots=True)
class _Engine:
    """One engine: a heap of the steps at which running sequences end, and a queue of those that wait."""

    cost: DecodeCost
    slots: int
    prompt: float
    samples: int  # of a group, whose prompt is read once
    now: float = 0.0
    step: int = 0
    cached: float = 0.0
    busy: float = 0.0
    draining: bool = False
    read: int = -1  # the latest group whose prompt was read
    running: list[tuple[int, int, int]] = field(default_factory=list)  # (last step, number, length)
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # (number, length)

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)

    def admit(self, at: float) -> None:
        """Fill free slots with waiting sequences."""
        if self.draining or not self.waiting or len(self.running) >= self.slots:
            return
        if not self.running:
            self.now = max(self.now, at)
        took, before = 0.0, self.read
        while self.waiting and len(self.running) < self.slots:
            number, length = self.waiting.popleft()
            heapq.heappush(self.running, (self.step + length, number, length))
            self.cached += self.prompt
            took += self.prompt * self.cost.prefill
            self.read = max(self.read, number // self.samples)
        took += self.cost.reading if self.read > before else 0.0
        self.now, self.busy = self.now + took, self.busy + took

    def next_end(self) -> float | None:
        """Return when the next sequence ends, if nothing else happens."""
        if not self.running:
            return None
        return self.now + self.cost.steps(self.running[0][0] - self.step, len(self.running), self.cached)

    def advance(self, steps: int) -> None:
        """Decode so many steps."""
        took = self.cost.steps(steps, len(self.running), self.cached)
        self.now, self.busy = self.now + took, self.busy + took
        self.step += steps
        self.cached += steps * len(self.running)

    def advance_to(self, at: float) -> None:
        """Decode the steps that end by a time which is before the next sequence ends; one under way is finished."""
        if not self.running or at <= self.now:
            return
        most = self.running[0][0] - self.step
        whole = self.cost.fitting(at - self.now, len(self.running), self.cached, most)
        self.advance(min(most, whole + 1) if self._left(whole, at) else whole)

    def _left(self, whole: int, at: float) -> bool:
        return self.now + self.cost.steps(whole, len(self.running), self.cached) < at

    def finish(self) -> list[int]:
        """Decode until the next sequence ends; return the numbers of all that end then."""
        self.advance(self.running[0][0] - self.step)
        ended = []
        while self.running and self.running[0][0] <= self.step:
            _, number, length = heapq.heappop(self.running)
            self.cached -= self.prompt + length
            ended.append(number)
        return ended

    def pause(self, at: float, seconds: float, recompute: bool = False, resumed: float = 0.0) -> None:
        """Take new weights; `recompute` reads everything in the cache again, after `resumed` seconds a sample."""
        self.advance_to(at)
        again = (
            self.cached * (self.cost.prefill if self.cost.reread is None else self.cost.reread) if recompute else 0.0
        )
        self.now = max(self.now, at) + seconds + again + (self.load * resumed if recompute else 0.0)
        self.busy += again


class _Simulation:
    def __init__(self, scenario: Scenario, lengths: Sequence[int], steps: int) -> None:
        self.scenario, self.lengths, self.steps = scenario, lengths, steps
        each = (scenario.decode, scenario.slots, scenario.prompt, scenario.samples)
        self.engines = [_Engine(*each) for _ in range(scenario.engines)]
        self.version, self.started, self.learning = 0, 0, False
        self.left: dict[int, int] = {}  # samples of each group that are not finished
        self.born: dict[int, int] = {}  # version with which each group started
        self.ready: list[int] = []  # in the order in which they were scored
        self.events: list[tuple[float, int, str, int]] = []  # scored groups and finished updates
        self.order = count()
        self.finished: list[float] = []  # when each update ended
        self.learned = 0.0
        self.ages: list[int] = []
        self.tokens: list[float] = []

    def run(self) -> Simulated:
        now = 0.0
        self._start_groups(now)
        while len(self.finished) < self.steps:
            # 1. The next thing to happen: a sequence ends, a group is scored, or an update is finished.
            ends = [(end, i) for i, engine in enumerate(self.engines) if (end := engine.next_end()) is not None]
            first = min(ends, default=None)
            if self.events and (first is None or self.events[0][0] <= first[0]):
                now, _, kind, number = heapq.heappop(self.events)
                if kind == "scored":
                    self.ready.append(number)
                else:
                    self._take_weights(now)
            elif first is not None:
                now = self._end_sequences(self.engines[first[1]])
            else:
                raise RuntimeError("nothing is left to happen: the buffer can never fill")
            # 2. What can start because of it.
            self._start_update(now)
            self._start_groups(now)
        return self._result()

    def _end_sequences(self, engine: _Engine) -> float:
        scenario, ended = self.scenario, engine.finish()
        now = engine.now
        for number in ended:
            group = number // scenario.samples
            self.left[group] -= 1
            if not self.left[group]:
                heapq.heappush(self.events, (now + scenario.reward, next(self.order), "scored", group))
        if engine.draining and not engine.running:
            engine.draining = False
            engine.pause(now, scenario.sync)
        engine.admit(now)
        return now

    def _start_update(self, now: float) -> None:
        scenario = self.scenario
        if self.learning or len(self.ready) < scenario.batch:
            return
        ages = {group: self.version - born for group, born in self.born.items()}
        groups = choose(scenario.batch, ages, self.ready, scenario.staleness, scenario.batch)
        if groups is None:
            return
        self.ready = [group for group in self.ready if group not in set(groups)]
        for group in groups:
            self.ages.append(ages[group])
            del self.born[group]
        written = sum(self._length(g * scenario.samples + i) for g in groups for i in range(scenario.samples))
        seconds = scenario.update.fixed + scenario.update.per_token * (written + scenario.prompt * len(groups))
        self.tokens.append(written)
        self.learning, self.learned = True, self.learned + seconds
        if not scenario.apart:
            for engine in self.engines:
                engine.pause(now, seconds)
        heapq.heappush(self.events, (now + seconds, next(self.order), "learned", self.version))

    def _take_weights(self, now: float) -> None:
        self.version, self.learning = self.version + 1, False
        self.finished.append(now)
        for engine in self.engines:
            if engine.running and not self.scenario.partial:
                engine.draining = True  # takes the weights when what it decodes is finished
            else:
                engine.pause(now, self.scenario.sync, self.scenario.recompute_cache, self.scenario.resumed)
                engine.admit(now)

    def _start_groups(self, now: float) -> None:
        scenario = self.scenario
        if not scenario.apart and self.learning:
            return
        while self.started < (self.version + scenario.batches_ahead + 1) * scenario.batch:
            engine = min(self.engines, key=lambda each: each.load)
            group = self.started
            self.left[group], self.born[group] = scenario.samples, self.version
            for i in range(scenario.samples):
                number = group * scenario.samples + i
                engine.waiting.append((number, self._length(number)))
            self.started += 1
        for engine in self.engines:
            engine.admit(now)

    def _length(self, number: int) -> int:
        return max(1, self.lengths[number % len(self.lengths)])

    def _result(self) -> Simulated:
        steps = [later - before for before, later in zip([0.0, *self.finished], self.finished)]
        counted = steps[self._warm_up() :]
        end, mean = self.finished[-1], sum(counted) / len(counted)
        busy = sum(min(engine.busy, end) for engine in self.engines) / (len(self.engines) * end)
        kept = self.tokens[self._warm_up() : len(self.finished)]
        return Simulated(
            step=mean,
            steps=tuple(steps),
            engines_idle=max(0.0, 1 - busy),
            learner_idle=max(0.0, 1 - self.learned / end),
            staleness=sum(self.ages) / len(self.ages),
            oldest=max(self.ages),
            tokens_per_s=sum(kept) / sum(counted),
        )

    def _warm_up(self) -> int:
        """Steps that do not count: those in which the buffer fills for the first time."""
        ahead = self.scenario.batches_ahead
        return min(self.steps - 1, ahead + 1 if ahead else 0)


def simulate(scenario: Scenario, lengths: Sequence[int], steps: int = 20) -> Simulated:
    """Play so many updates; sample i has length i of `lengths`, from the front again where they end."""
    return _Simulation(scenario, lengths, steps).run()
