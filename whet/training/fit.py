"""The loop that every training job runs: steps, validation, checkpoints, interrupts, divergence, closing lines.

`whet train` and `whet sft` subclass `FitLoop` and supply `train_step`, `validate`, `save` and `restore`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config
from whet.doctor.doctor import Doctor
from whet.doctor.findings import Finding
from whet.doctor.rules import rules
from whet.errors import DivergedError, RewardsFailedError, UserError
from whet.tracking.console import Console
from whet.tracking.requests import take
from whet.training.curves import Curves
from whet.training.interrupt import Interrupt
from whet.training.state import RunState
from whet.training.store import RunStore


class FitLoop(ABC):
    """Trains from wherever the run stands to its last step, an interrupt, or an error."""

    state: RunState

    def __init__(
        self, config: Config, store: RunStore, interrupt: Interrupt, console: Console, total_steps: int
    ) -> None:
        self.config = config  # of the current stage
        self.store, self.interrupt, self.console = store, interrupt, console
        self.total_steps = total_steps
        self.watch = DivergenceWatch()
        self.doctor = Doctor(store.folder.path, console.warn, rules(config, total_steps))
        self.curves = Curves(store.folder, config.trainer.experiment_name, console.warn)

    def fit(self) -> None:
        """Train to the last step."""
        state, config = self.state, self.config.trainer
        self.restore()
        check_weights(self.trained, self.store.checkpoint)
        started, begun_at = time.perf_counter(), state.step
        take(self.store.folder.path)  # requests to an earlier process
        if config.val_only or (config.val_before_train and state.step == 0):
            self.report(self.validate())
        while state.step < self.total_steps and not config.val_only and not self.interrupt.asked:
            state.step += 1
            metrics = self.train_step()
            self.stop_if(self.watch.observe(metrics), metrics)
            asked = self.requests()
            metrics |= self.validate_if_due(metrics, "validate" in asked)
            self.step_measured(metrics)
            metrics |= self.validate_if_due(metrics)  # this may have become the last step
            self.report(metrics)
            self.doctor.observe(state.step, metrics)
            self.step_reported()
            last = state.step == self.total_steps or self.interrupt.asked
            if last:
                self.stop_if(self.watch.reason_not_to_save())
            # A state that could not be updated may be a broken one: the checkpoints before it stay the newest.
            due = "save" in asked or (config.save_freq > 0 and state.step % config.save_freq == 0)
            if last or (due and not self.watch.skipped):
                self.save()
        self.say_goodbye(time.perf_counter() - started, trained=state.step > begun_at)

    @property
    @abstractmethod
    def trained(self) -> Mapping[str, Trained]:
        """The models that are trained and saved, by the names of their folders in a checkpoint."""

    @abstractmethod
    def train_step(self) -> dict[str, float]:
        """Take the step `state.step`; return its metrics."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Return the metrics of a validation, noted in the state; {} without validation data."""

    @abstractmethod
    def save(self) -> None:
        """Write a checkpoint of this step."""

    @abstractmethod
    def restore(self) -> None:
        """Continue from `store.checkpoint`, if there is one; models and loader have its weights and position."""

    def step_measured(self, metrics: dict[str, float]) -> None:
        """Decide by a step's metrics, before they are reported, whether it was the last."""
        return

    def step_reported(self) -> None:
        """Prepare the next step."""
        return

    def report(self, metrics: dict[str, float]) -> None:
        """Send a step's metrics wherever the config wants them."""
        if metrics:  # a run without validation data has nothing to say before its first step
            self.store.tracker.log(self.state.step, metrics)
            self.curves.logged(validated=any(name.startswith("val/") for name in metrics))

    def end_at(self, step: int) -> None:
        """Make this the last step of the run."""
        self.total_steps = self.console.total_steps = step

    def stop_if(self, reason: str | None, metrics: dict[str, float] | None = None) -> None:
        """End the run with an error where there is a reason, after reporting the step's metrics."""
        if reason is not None:
            self.report(metrics or {})
            self.curves.draw()
            raise diverged(self.config, self.store.folder.path, self.state.step, reason)

    def requests(self) -> list[str]:
        """Return what somebody asked the run for during this step (whet board --control)."""
        asked = take(self.store.folder.path)
        if asked:
            self.console.note(f"asked to {' and to '.join(asked)} after step {self.state.step}")
        if "stop" in asked:
            self.interrupt.asked = True
        return asked

    def validate_if_due(self, trained: dict[str, float], asked: bool = False) -> dict[str, float]:
        """Validate every `val_freq` steps, and after the last step of a run that validates at all; once per step.

        Where no validation sample could be scored, the step is reported with its metrics `trained` and saved, and the
        run ends.
        """
        config, step = self.config.trainer, self.state.step
        if step == self.total_steps:
            due = config.val_freq > 0 or config.val_before_train
        else:
            due = config.val_freq > 0 and step % config.val_freq == 0
        if not (due or asked) or self.state.latest.get("step") == step:
            return {}
        try:
            return self.validate()
        except RewardsFailedError as error:
            self.report(trained)
            raise self.stopped(error) from None

    def stopped(self, error: RewardsFailedError) -> RewardsFailedError:
        """Save the state, unless it is saved already, and say in the error how the run continues."""
        step = self.state.step
        self.doctor.note(Finding("rewards", step, str(error)))
        if step == 0:
            return RewardsFailedError(f"{error} Nothing was trained yet; start the run again.")
        folder = self.store.checkpoints.folder / f"global_step_{step}"
        if not folder.exists():
            self.save()
        return RewardsFailedError(f"{error} The same command goes on from {folder}.")

    def say_goodbye(self, seconds: float, trained: bool = True) -> None:
        """Print the closing lines; `trained` is False if the run had finished before."""
        state, resume = self.state, None
        self.curves.draw()
        if state.step < self.total_steps and not self.config.trainer.val_only:
            resume = "the same command goes on from here" if state.step else "nothing was trained yet; start it again"
        if not trained and state.step >= self.total_steps and not self.config.trainer.val_only:
            from whet.training.differences import more_steps, new_run

            resume = f"{more_steps(self.config, state.step)}\n  new run    {new_run(self.config)}"
            self.console.done(state.step, self.store.folder.path, None, state.before, state.latest, resume)
            return
        self.console.done(state.step, self.store.folder.path, seconds, state.before, state.latest, resume)


MOST_SKIPPED = 3  # steps in a row whose updates were all skipped, after which a run stops
_TRAINED = ("actor", "critic")


class Trained(Protocol):
    """A model that is trained: the policy or the critic."""

    def broken_weights(self) -> list[str]:
        """Names of parameters that are not finite."""


class DivergenceWatch:
    """Counts steps whose updates were all skipped because gradients were not finite, and looks at the weights."""

    def __init__(self) -> None:
        self._updated = 0  # steps that changed or tried to change the weights
        self.skipped = 0  # the latest of those in a row that changed nothing
        self._outputs_broken = False

    def observe(self, metrics: Mapping[str, float]) -> str | None:
        """Take the metrics of a step; return the reason why the run must not go on, or None."""
        for part in _TRAINED:
            tensors = metrics.get(f"{part}/weights_not_finite", 0)
            if tensors:
                return f"the update left {tensors:.0f} weight tensors of the {part} with values that are not finite"
        parts = [part for part in _TRAINED if f"{part}/grad_skipped" in metrics]
        if not parts:
            return None
        self._updated += 1
        nothing_changed = [part for part in parts if _all_skipped(metrics, part)]
        self.skipped = self.skipped + 1 if nothing_changed else 0
        self._outputs_broken = any(
            not math.isfinite(value) for name, value in metrics.items() if name.partition("/")[0] in nothing_changed
        )
        if self.skipped >= MOST_SKIPPED:
            return f"in {self.skipped} steps in a row every update of the {nothing_changed[0]} was skipped" + _WHY
        return None

    def reason_not_to_save(self) -> str | None:
        """Why the state must not be saved as the result of a run, or None."""
        if self.skipped and (self._outputs_broken or self.skipped == self._updated):
            return "every update was skipped" + _WHY
        return None


_WHY = ", because its loss or gradient was not finite"


def diverged(config: Config, folder: Path, step: int, reason: str) -> DivergedError:
    """The error that ends a run at `step`, with the checkpoint that stands."""
    from whet.checkpoint.judging import judge

    good = judge(folder).good
    stands = "There is no checkpoint yet, so the run has to start over."
    if good is not None:
        stands = f"The last checkpoint is {good.path}; the same command continues from it."
    part = "critic" if "critic" in reason else "actor"
    return DivergedError(
        f"step {step}: {reason}. Nothing was saved at this step. {stands} "
        f"Lower worker.{part}.optim.lr={getattr(config.worker, part).optim.lr:g} or worker.{part}.max_grad_norm; "
        f"metrics that are not finite are listed in {folder / 'metrics.jsonl'}."
    )


def check_weights(trained: Mapping[str, Trained], checkpoint: Checkpoint | None) -> None:
    """Raise a `UserError` if the weights that a run begins with are not finite."""
    for part, model in trained.items():
        names = model.broken_weights()
        if not names:
            continue
        found = f"{len(names)} weight tensors hold NaN or infinite values ({names[0]} is one)"
        if checkpoint is not None:
            raise UserError(
                f"{checkpoint.path}/{part}: {found}. Continue from an earlier checkpoint with "
                "trainer.find_last_checkpoint=false trainer.load_checkpoint_path=.../global_step_N."
            )
        raise UserError(f"worker.{part}.model.model_path: {found}; choose another model, or restore its files")


def _all_skipped(metrics: Mapping[str, float], part: str) -> bool:
    return metrics[f"{part}/grad_skipped"] > 0 and f"{part}/grad_norm" not in metrics
