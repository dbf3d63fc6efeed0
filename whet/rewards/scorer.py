"""Samples in, scores out: what the loop knows of rewards.

A sample whose reward raised, hung, killed its worker or returned no score gets the configured fallback, is counted in
the metrics and reported once; the others keep their own scores. Only where every sample failed is there an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from typing import TYPE_CHECKING

from whet.errors import RewardsFailedError, UserError
from whet.rewards.calls import Call, Outcome, describe, failure_counts, is_infrastructure
from whet.rewards.choice import Choice, choose
from whet.rewards.inputs import Decode, reward_input
from whet.rewards.pool import WorkerPool
from whet.rewards.result import LARGEST, Scores
from whet.rewards.setup import WorkerSetup
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.config.schema.reward import RewardConfig
    from whet.config.schema.sandbox import SandboxConfig

log = logging.getLogger("whet")

SAMPLES_PER_TIMEOUT = 64  # a batch call has `timeout` seconds for every so many samples
MOST_NAMES = 1000  # of scores in a run: each is a metric and a column of the sample log


class RewardScorer:
    """Scores samples with the function that `path.py:function` names, in worker processes."""

    def __init__(
        self,
        spec: str,
        config: RewardConfig,
        resolve: Callable[[str], Path] = Path,
        warn: Callable[[str], None] = log.warning,
        output: Path | None = None,
        sandbox: SandboxConfig | None = None,
    ) -> None:
        """`warn` gets each kind of failure once; `output` is the file for what the function prints (None drops it).

        `sandbox` is for programs that the function runs; None takes the defaults.
        """
        if not config.timeout > 0:
            raise UserError(f"worker.reward.timeout: {config.timeout} must be more than 0 seconds")
        if not abs(config.fallback) <= LARGEST:
            raise UserError(f"worker.reward.fallback: {config.fallback} must be finite and within ±{LARGEST:g}")
        self._file = f"{gettempdir()}/whet-pace-{os.urandom(8).hex()}"  # made by workers that keep a rate
        chosen = choose(spec, config, resolve, self._file)
        self._label = chosen.label
        self._spec = chosen.label.partition("=")[2]
        self._by_source = chosen.by_source
        self._scorers = set(chosen.scorers)  # of whet's own, by name
        self._config = config
        self._sandbox = sandbox
        self._warn = warn
        self._output = output
        self._names: set[str] = set()  # of all scores so far
        self._last_failure: Outcome | None = None
        self._batch: bool | None = None
        self._wanted: frozenset[str] = frozenset()  # of `inputs.ASKED`
        self.decode: Decode | None = None  # makes texts of turns; set by what has a tokenizer
        self._reported: set[tuple[str, str]] = set()
        self._pool = WorkerPool(_setup(chosen, config, output, sandbox), config.num_cpus)

    def __enter__(self) -> RewardScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, prompts: list[Prompt]) -> None:
        """Load the function and score rows, their answers as responses; UserError on a result that is no score."""
        if self._by_source:
            from whet.rewards.dispatch import check_sources

            self._scorers |= check_sources((prompt.uid, prompt.extra) for prompt in prompts)
        if self._scorers:
            from whet.rewards.dispatch import runs_programs
            from whet.rewards.programs.opened import check_sandbox

            if any(runs_programs(name) for name in self._scorers):
                check_sandbox(self._sandbox)
        rows = [_as_sample(prompt) for prompt in prompts]
        for group in [rows] if self.scores_batches() and rows else [[row] for row in rows]:
            outcome = self._call_each([group])[0]
            if outcome.failure == "bad result":
                raise UserError(f"{self._label}: {outcome.detail} (tried with row {group[0].prompt.uid})")
            for row, result in zip(group, outcome.results):
                if isinstance(result, str):
                    raise UserError(f"{self._label}: {result} (tried with row {row.prompt.uid})")
            if outcome.failure and is_infrastructure(outcome):
                raise UserError(f"{outcome.detail.rstrip().rpartition('UnreachableError: ')[2]}")
            if outcome.cause.startswith("UserError at "):  # an option of a scorer
                wrong = " ".join(outcome.detail.rpartition("UserError: ")[2].split())
                tried = f"tried with row {group[0].prompt.uid}; options are worker.reward.reward_function_kwargs"
                raise UserError(f"{self._label}: {wrong} ({tried})")
            if outcome.failure:
                self._report(group[0], outcome, "in the dry run; training goes on, failures are counted")

    def ready(self) -> None:
        """Load nothing: functions have no weights of ours."""

    def trial(self, samples: list[Sample], end: float) -> list[Scores | None]:
        """Score samples without reporting or counting anything; None for those without a score by the time `end`.

        `end` is of `time.monotonic`. Calls that still run then are given up, and cost their workers.
        """
        calls, found = self._calls(samples), dict.fromkeys(map(id, samples))
        ended: SimpleQueue[tuple[int, Outcome | BaseException]] = SimpleQueue()
        made = [self._as_call(group) for group in calls]
        with self._pool.calling(made, lambda *each: ended.put(each)), contextlib.suppress(Empty):
            for _ in calls:
                position, outcome = ended.get(timeout=max(0.0, end - time.monotonic()))
                results = outcome.results if isinstance(outcome, Outcome) else []
                found |= {id(s): r for s, r in zip(calls[position], results) if not isinstance(r, str)}
        return [found[id(sample)] for sample in samples]

    def score(self, samples: list[Sample], progress: Callable[[int], None] | None = None) -> dict[str, float]:
        """Fill `scores` and `failure` of every sample and count failures; `progress` hears how many just finished."""
        calls = self._calls(samples)
        while calls:
            once_more: list[list[Sample]] = []

            def settle(group: list[Sample], outcome: Outcome, again: list[list[Sample]] = once_more) -> None:
                split = self._settle(group, outcome)
                again += split
                if progress and not split:
                    progress(len(group))

            self._call_each(calls, settle)
            calls = once_more
        return failure_counts(samples)

    async def score_async(self, samples: list[Sample]) -> dict[str, float]:
        """Do the same beside other calls, in any event loop; cancelled, it ends the workers that score its samples."""
        loop = asyncio.get_running_loop()
        calls = self._calls(samples)
        while calls:
            ended: asyncio.Queue[tuple[int, Outcome | BaseException]] = asyncio.Queue()

            def done(
                position: int, outcome: Outcome | BaseException, put: Callable[..., None] = ended.put_nowait
            ) -> None:
                with contextlib.suppress(RuntimeError):  # the caller's loop has closed: nobody waits any more
                    loop.call_soon_threadsafe(put, (position, outcome))

            once_more = []
            with self._pool.calling([self._as_call(group) for group in calls], done):
                for _ in calls:
                    position, outcome = await ended.get()
                    if isinstance(outcome, BaseException):
                        raise RuntimeError("the reward workers failed") from outcome
                    once_more += self._settle(calls[position], outcome)
            calls = once_more
        return failure_counts(samples)

    def require_scores(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if the function failed on every one of these samples, which `score` has seen."""
        if not samples or not all(sample.failure for sample in samples):
            return
        counts = Counter(str(sample.failure) for sample in samples)
        kinds = ", ".join(f"{count} {failure}" for failure, count in counts.most_common())
        shown = ""
        if (last := self._last_failure) is not None:
            shown = f" The last time it {describe(last, self._config.timeout)}:\n{last.detail}".rstrip()
        prints = f" What it printed is in {self._output}." if self._output else ""
        raise RewardsFailedError(
            f"{where}: {self._label} failed on all {len(samples)} samples ({kinds}), so none has a score.{shown}\n"
            f"Correct the function, or the rows that it is given.{prints}"
        )

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()
        Path(self._file).unlink(missing_ok=True)

    def scores_batches(self) -> bool:
        """True if the function takes a whole batch. Asked once: later, a worker that cannot start costs samples."""
        if self._batch is None:
            self._batch, self._wanted = self._pool.start()
        return self._batch

    def wants(self, name: str) -> bool:
        """True if the function asks for "images", "videos" or "turns"."""
        self.scores_batches()
        return name in self._wanted

    def _call_each(
        self, groups: list[list[Sample]], settle: Callable[[list[Sample], Outcome], None] | None = None
    ) -> list[Outcome]:
        """One call of the function per group; outcomes in the order of the groups."""
        outcomes: list[Outcome] = [Outcome()] * len(groups)

        def done(position: int, outcome: Outcome) -> None:
            outcomes[position] = outcome
            if settle:
                settle(groups[position], outcome)

        self._pool.run([self._as_call(group) for group in groups], done)
        return outcomes

    def _as_call(self, group: list[Sample]) -> Call:
        first = group[0]
        seed = f"{first.prompt.uid}/{first.index}/{first.version}".encode("utf-8", "surrogatepass")
        inputs = [reward_input(sample, self._wanted, self.decode) for sample in group]
        return Call(seed, inputs, self._budget(len(group)))

    def _budget(self, size: int) -> float:
        """Seconds for a call with so many samples."""
        return self._config.timeout * math.ceil(size / SAMPLES_PER_TIMEOUT)

    def _calls(self, samples: list[Sample]) -> list[list[Sample]]:
        """Return the samples of each call: all at once for a function that takes a batch, else one by one."""
        return [samples] if samples and self.scores_batches() else [[sample] for sample in samples]

    def _settle(self, group: list[Sample], outcome: Outcome) -> list[list[Sample]]:
        """Give the samples of a call what it returned; where a batch failed, return the calls to make instead."""
        if outcome.failure and len(group) > 1 and not is_infrastructure(outcome):
            self._report_batch(outcome, len(group))
            return [[sample] for sample in group]
        if outcome.failure:
            for sample in group:
                self._fail(sample, outcome)
            return []
        for sample, result in zip(group, outcome.results, strict=True):
            if isinstance(result, str):
                self._fail(sample, Outcome(failure="bad result", detail=result))
            else:
                sample.scores = self._known(result)
                sample.failure = None
        return []

    def _known(self, scores: Scores) -> Scores:
        """The scores without those of ever new names."""
        new = scores.keys() - self._names
        if len(self._names) + len(new) <= MOST_NAMES:
            self._names |= new
            return scores
        if ("names", "") not in self._reported:
            self._reported.add(("names", ""))
            self._warn(
                f"reward function {self._spec} has given scores of {MOST_NAMES} names; others are left out of the "
                "metrics. A score's name must not depend on the sample."
            )
        return {name: number for name, number in scores.items() if name in self._names or name == "overall"}

    def _fail(self, sample: Sample, outcome: Outcome) -> None:
        self._last_failure = outcome
        sample.scores = {"overall": float(self._config.fallback)}
        sample.failure = outcome.failure
        self._report(sample, outcome, f"so the sample scores worker.reward.fallback={self._config.fallback}")

    def _report(self, sample: Sample, outcome: Outcome, consequence: str) -> None:
        """Warn of a failure whose like was not seen before."""
        if (outcome.failure, outcome.cause) in self._reported:
            return
        self._reported.add((outcome.failure, outcome.cause))
        what = f"{describe(outcome, self._config.timeout)} on {sample.prompt.uid}, {consequence}"
        self._warn(f"reward function {self._spec} {what} (shown once)\n{outcome.detail}".rstrip())

    def _report_batch(self, outcome: Outcome, size: int) -> None:
        if ("batch", outcome.failure) in self._reported:
            return
        self._reported.add(("batch", outcome.failure))
        what = f"{describe(outcome, self._budget(size))} on a batch of {size}, so its samples are scored one by one"
        self._warn(f"reward function {self._spec} {what} (shown once)\n{outcome.detail}".rstrip())


def _setup(chosen: Choice, config: RewardConfig, output: Path | None, sandbox: SandboxConfig | None) -> WorkerSetup:
    declared = config.reward_type
    if declared is None and config.manager is not None and not chosen.source.is_scorer:
        declared = "batch" if config.manager == "batch" else "sequential"
    programs = asdict(sandbox) if sandbox else {}
    return WorkerSetup(chosen.source, declared, chosen.options, output, programs, chosen.parts, config.memory_limit_mb)


def _as_sample(prompt: Prompt) -> Sample:
    text = "" if prompt.answer is None else str(prompt.answer)
    ids = [0] * len(text.split())  # nothing is tokenized yet; the function sees only how many there are
    return Sample.written(prompt, ids, [0.0] * len(ids), "stop", text=text)
