"""The batch of a step: draw prompts, sample, score, keep what is worth training on, until there is enough.

Groups beyond what a step needs wait for the next one. Their samples are then a little off-policy: `version` says by how
much, and their old log-probs stay those of the policy that wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from whet.config import Config, resolve_path
from whet.data.loader import PromptLoader
from whet.errors import RewardsFailedError, UserError
from whet.rewards.calls import failure_counts
from whet.tracking.console import Console
from whet.training.measure import StepClock, sampled_metrics, solved_groups
from whet.training.rollouts import Rollouts, sampling_params
from whet.training.state import TrainerState
from whet.types import Group, Prompt, Sample

if TYPE_CHECKING:
    from whet.training.history import History


@dataclass(slots=True)
class Batch:
    """Samples that a step trains on, and what else it sampled."""

    samples: list[Sample]  # to train on; none when no group was worth it
    dropped: list[Sample]
    drawn: list[Sample]  # everything sampled in this step, whether trained on now, later or never
    metrics: dict[str, float]
    groups: list[Group] = field(default_factory=list)  # of `drawn`


@dataclass(slots=True)
class Draws:
    """Groups and failures of the draws of one step."""

    groups: list[Group] = field(default_factory=list)
    replayed: list[Group] = field(default_factory=list)  # of earlier steps, which take the place of as many
    count: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def samples(self) -> list[Sample]:
        return _flat(self.groups)


class BatchMaker:
    """Makes batches as the config of the current stage says: synchronous training, where nothing stays in flight."""

    def __init__(
        self, rollouts: Rollouts, loader: PromptLoader[Prompt] | None, state: TrainerState, console: Console
    ) -> None:
        self._rollouts, self._loader, self._state, self._console = rollouts, loader, state, console
        self.history: History | None = None  # of what earlier steps found, where the config asks for it

    def make(self, config: Config, clock: StepClock) -> Batch:
        """Return the batch of the next step."""
        state = self._state
        draws = Draws()
        draws.replayed = self.history.replayed(state.step, self._rollouts.engine.version) if self.history else []
        keep, wanted = keep_rule(config), groups_per_step(config) - len(draws.replayed)
        kept = state.carried
        arrived = len(kept)
        while not _is_enough(config, kept, draws, wanted):
            if draws.groups and self.history is not None and self.history.learned():
                break  # rows that this step retired are missing for another draw
            missing = wanted - len(kept if config.algorithm.refills else draws.groups)
            groups = self.draw(config, clock, draws, missing)
            kept = kept + [group for group in groups if keep(group.samples)]
        passed = {id(group) for group in kept}
        dropped = [group for group in draws.groups if id(group) not in passed]
        for sample in _flat(dropped):
            sample.dropped = True
        kept, state.carried = kept[:wanted], kept[wanted:]
        self._note_what_is_missing(config, kept, draws)
        if self.history is not None:
            self.history.keep(kept)
            kept = kept + draws.replayed
        metrics = {
            **(self.history.metrics() if self.history else {}),
            **(sampled_metrics(draws.samples) if draws.groups else {}),
            **draws.failures,
            **self._metrics(kept, arrived, dropped, draws),
        }
        return Batch(_flat(kept), _flat(dropped), draws.samples, metrics, draws.groups)

    def still(self) -> AbstractContextManager[None]:
        """Keep the engine from drawing tokens inside the context: here nothing is being sampled between batches."""
        return nullcontext()

    @contextmanager
    def rewound_on_failure(self) -> Iterator[None]:
        """Go back to before the step if a `RewardsFailedError` is raised inside the context."""
        before = None if self.history is None else self.history.snapshot()
        try:
            with self._state.rewound_on_failure(self._loader):
                yield
        except RewardsFailedError:
            if self.history is not None:
                self.history.rewind(before)
            raise

    def configure(self, config: Config) -> None:
        """Go on under the config of another stage."""

    def save(self, folder: Path) -> None:
        """Write the groups that wait for a later step into a checkpoint."""
        if self._state.carried:
            from whet.training.groups import save_groups

            save_groups(self._state.carried, folder / "carried.json")
        if self.history is not None:
            self.history.save(folder)

    def load(self, folder: Path) -> None:
        """Go on with what a checkpoint holds."""
        if self._loader is not None and (folder / "carried.json").exists():
            from whet.training.groups import load_groups

            self._state.carried = load_groups(folder / "carried.json", self._loader)
        if self.history is not None:
            self.history.load(folder)

    def close(self) -> None:
        """Nothing was started."""

    def draw(self, config: Config, clock: StepClock, draws: Draws, missing: int) -> list[Group]:
        """Sample and score the loader's next prompts; the step needs `missing` groups."""
        state, rollouts, loader = self._state, self._rollouts, self._loader
        assert loader is not None, "a run that only validates has no training prompts"
        params = sampling_params(config.worker.rollout, config.data.max_response_length)
        rows = loader.next_rows(missing if draws.replayed and not config.algorithm.refills else None)
        first = state.samples_drawn
        ids = [range(first + i * params.n, first + (i + 1) * params.n) for i in range(len(rows))]
        groups = rollouts.collect(rows, loader.prompts(rows), params, ids, clock)
        state.samples_drawn += len(rows) * params.n
        return self.note(config, draws, groups)

    def note(self, config: Config, draws: Draws, groups: list[Group]) -> list[Group]:
        """Add groups to the draws of a step; stop the run if none of its samples could be scored."""
        if self.history is not None:
            self.history.observe(groups)
        draws.failures.update(failure_counts(_flat(groups)))
        draws.groups += groups
        draws.count += 1
        if len(draws.groups) >= config.data.rollout_batch_size:  # further draws would not do better
            self._rollouts.require_scores(draws.samples, f"step {self._state.step}")
        return groups

    def _note_what_is_missing(self, config: Config, kept: Sequence[Group], draws: Draws) -> None:
        """Warn when a filter left too little; stop the run when it has left nothing for too long."""
        state, wanted = self._state, groups_per_step(config)
        state.empty_steps = 0 if kept else state.empty_steps + 1
        names, sampled = filter_names(config), len(draws.groups)
        if state.empty_steps >= config.trainer.max_empty_steps:
            raise UserError(
                f"{names} kept none of the groups sampled in {state.empty_steps} steps in a row "
                f"(trainer.max_empty_steps), so there is nothing to learn from: the data is too hard or too easy for "
                "this model, or the reward does not tell samples apart. Look at reward/overall, batch/solve_all and "
                "batch/solve_none, then change the data, the reward function, the filter, or raise worker.rollout.n."
            )
        if not kept:
            self._console.warn(
                f"step {state.step}: {names} kept none of {sampled} groups in {draws.count} draws; "
                "this step trains on nothing"
            )
        elif config.algorithm.refills and len(kept) < wanted:
            self._console.warn(
                f"step {state.step}: {names} kept {len(kept)} of the {wanted} groups wanted in {draws.count} draws; "
                "training on those"
            )

    def _metrics(self, kept: Sequence[Group], arrived: int, dropped: Sequence[Group], draws: Draws) -> dict[str, float]:
        sampled = len(draws.groups)
        metrics: dict[str, float] = {
            **({"batch/replayed": len(draws.replayed)} if self.history else {}),
            "batch/draws": draws.count,
            "batch/groups": len(kept),
            "batch/stale_groups": min(arrived, len(kept)),
            "batch/carried": len(self._state.carried),
            "batch/empty_steps": self._state.empty_steps,
        }
        if sampled:
            everything, nothing = solved_groups([group.samples for group in draws.groups])
            metrics |= {
                "batch/kept_ratio": 1 - len(dropped) / sampled,
                "batch/solve_all": everything / sampled,
                "batch/solve_none": nothing / sampled,
            }
        return metrics


def open_batches(
    config: Config,
    rollouts: Rollouts,
    loader: PromptLoader[Prompt] | None,
    state: TrainerState,
    console: Console,
    folder: Path,
    steps_left: Callable[[], int],
) -> BatchMaker:
    """Return what makes the batches of a run: synchronously, asynchronously, or as another run has made them.

    `folder` is the run's; `steps_left` counts the steps that are still to be taken, the current one included.
    """
    trainer = config.trainer
    if loader is None or (trainer.max_staleness == 0 and trainer.replay is None):
        batches = BatchMaker(rollouts, loader, state, console)
        if loader is not None and config.keeps_history:
            from whet.training.history import History

            batches.history = History(config, loader)
        return batches
    from whet.training.flow import Flow
    from whet.training.schedule import Replay, Schedule

    if trainer.replay is not None:
        return Replay(rollouts, loader, state, console, Schedule(resolve_path(config, trainer.replay)))
    return Flow(rollouts, loader, state, console, Schedule(folder), steps_left)


def groups_per_step(config: Config) -> int:
    """The most groups that a step trains on."""
    return config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier


def _is_enough(config: Config, kept: Sequence[Group], draws: Draws, wanted: int) -> bool:
    if not config.algorithm.refills:
        return len(draws.groups) >= wanted
    from whet.config.checks.recipes import draws_allowed

    return len(kept) >= wanted or draws.count == draws_allowed(config)


def _flat(groups: Sequence[Group]) -> list[Sample]:
    return list(chain.from_iterable(group.samples for group in groups))


Rule = Callable[[Sequence[Sample]], bool]

# Other words for a score, looked for where the reward function gives none of that name: verl's words for the reward.
_SYNONYMS = {
    **dict.fromkeys(("reward", "score", "seq_reward", "seq_final_reward"), "overall"),
    "acc": "accuracy",
    "accuracy": "acc",
}


def keep_rule(config: Config) -> Rule:
    """Return the test that a group passes every filter of the config; a config without filters keeps all."""
    rules = [rule for _, rule in _rules(config)]
    return lambda group: all(rule(group) for rule in rules)


def filter_names(config: Config) -> str:
    """The keys that filter, for messages."""
    return " and ".join(name for name, _ in _rules(config))


def _rules(config: Config) -> Iterator[tuple[str, Rule]]:
    algorithm = config.algorithm
    if algorithm.filter_groups.enable:
        metric = algorithm.filter_groups.metric
        yield "algorithm.filter_groups", lambda group: _differs(scores_of(group, metric, "filter_groups.metric"))
    if algorithm.online_filtering:
        low, high, name = algorithm.filter_low, algorithm.filter_high, algorithm.filter_key
        yield "algorithm.online_filtering", lambda group: low < _mean(scores_of(group, name, "filter_key")) < high
    if config.trainer.rejection_sample:
        yield "trainer.rejection_sample", lambda group: {s.reward for s in group} not in ({0.0}, {1.0})


def scores_of(group: Sequence[Sample], name: str, key: str) -> list[float]:
    """The score of that name of every sample; a sample whose reward failed counts with its fallback."""
    given = {score for sample in group if sample.failure is None for score in sample.scores}
    found = name if name in given or not given else _SYNONYMS.get(name, name)
    if given and found not in given:
        raise UserError(
            f"algorithm.{key}={name}: the reward function gives no score of that name, only {', '.join(sorted(given))}"
        )
    return [sample.reward if (score := sample.score(found)) is None else score for sample in group]


def _differs(scores: Sequence[float]) -> bool:
    return len(scores) == 1 or any(score != scores[0] for score in scores)


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
