"""The loop: prompts → samples → rewards → advantages → update, and what surrounds it.

`Trainer.fit` reads like the picture in docs/architecture.md. How any of the rooms does its part is not known here, and
no algorithm has its name here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from whet.config import Config, val_rollout
from whet.errors import RewardsFailedError
from whet.rollout.engine import SamplingParams
from whet.training.batch import BatchMaker
from whet.training.components import Rooms
from whet.training.correction import warn_of_skips
from whet.training.divergence import DivergenceWatch, check_weights, diverged
from whet.training.experience import make_experience, resampled
from whet.training.measure import StepClock, advantage_metrics
from whet.training.no_rewards import saving_steps_before, stopped
from whet.training.objective import objective
from whet.training.signals import compute_signals, old_log_probs, reference_log_probs
from whet.training.state import TrainerState
from whet.training.validation import summarise, validation_params
from whet.training.values import update_critic
from whet.types import Prompt, Sample


class Trainer:
    """Runs a config's rooms until the last step, an interrupt, or an error."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms, self.state = rooms, TrainerState()
        self.batches = BatchMaker(rooms, self.state)
        self.watch = DivergenceWatch()
        self._shown: list[Sample] = []  # generations of the latest validation that no logger has seen yet

    @property
    def config(self) -> Config:
        """The config of the current stage."""
        return self.rooms.config

    def fit(self) -> None:
        """Train from wherever the run stands to its last step."""
        rooms, state, config = self.rooms, self.state, self.config.trainer
        state.restore(rooms)
        check_weights(rooms.trained, rooms.checkpoint)
        rooms.enter_stage()
        started = time.perf_counter()
        if config.val_only or (config.val_before_train and state.step == 0):
            self.report(self.validate())
        while state.step < rooms.total_steps and not config.val_only and not rooms.interrupt.asked:
            state.step += 1
            metrics = self.train_step()
            self.stop_if(self.watch.observe(metrics), metrics)
            metrics |= self.validate_if_due(metrics)
            stage_ended = rooms.stages.observe(metrics)
            if rooms.stages.is_over:
                rooms.end_at(state.step)
            self.report(metrics | self.validate_if_due(metrics))  # this may have become the last step
            if stage_ended:
                state.begin_stage(rooms)
            last = state.step == rooms.total_steps or rooms.interrupt.asked
            if last:
                self.stop_if(self.watch.reason_not_to_save())
            # A state that could not be updated may be a broken one: the checkpoints before it stay the newest.
            if last or (config.save_freq > 0 and state.step % config.save_freq == 0 and not self.watch.skipped):
                state.save(rooms)
        state.say_goodbye(rooms, time.perf_counter() - started)

    def stop_if(self, reason: str | None, metrics: dict[str, float] | None = None) -> None:
        """End the run with an error where there is a reason, after reporting the step's metrics."""
        if reason is not None:
            self.report(metrics or {})
            raise diverged(self.config, self.rooms.folder.path, self.state.step, reason)

    def validate_if_due(self, trained: dict[str, float]) -> dict[str, float]:
        """Every `val_freq` steps, and after the last step of a run that validates at all; once for each step.

        Where no validation sample could be scored, the step is reported with its metrics `trained` and saved, and the
        run ends.
        """
        config, step = self.config.trainer, self.state.step
        if step == self.rooms.total_steps:
            due = config.val_freq > 0 or config.val_before_train
        else:
            due = config.val_freq > 0 and step % config.val_freq == 0
        if not due or self.state.latest.get("step") == step:
            return {}
        try:
            return self.validate()
        except RewardsFailedError as error:
            self.report(trained)
            raise stopped(self.rooms, self.state, error) from None

    def train_step(self) -> dict[str, float]:
        """One round through the rooms; returns its metrics."""
        rooms, state = self.rooms, self.state
        clock = StepClock(rooms.console)
        with saving_steps_before(rooms, state):
            batch = self.batches.make(clock)
        metrics = batch.metrics | (self.learn(batch.samples, clock) if batch.samples else {})
        shown = batch.samples + batch.dropped
        rooms.tracker.samples(state.step, "train", shown)
        return metrics | clock.metrics(shown, batch.drawn) | rooms.position(state.step)

    def learn(self, samples: list[Sample], clock: StepClock) -> dict[str, float]:
        """Update the policy on scored samples; returns what happened as metrics."""
        rooms, state = self.rooms, self.state
        old = old_log_probs(rooms, samples, clock)
        ref = reference_log_probs(rooms, samples, clock)
        computed = compute_signals(rooms, samples, old, state.step, clock)
        experience, metrics = make_experience(samples, old, ref, self.config.algorithm, computed, rooms.control.kl)
        experience, drawn_anew = resampled(experience, self.config, state.step)
        metrics |= drawn_anew | update_critic(rooms, experience, state.step, clock)
        weights = rooms.control.coefficients(experience)
        if state.step > self.config.trainer.critic_warmup:
            with clock.stage("update", len(samples) * self.config.worker.actor.ppo_epochs) as advance:
                loss = objective(experience, self.config, weights, rooms.reference)
                chosen, version = experience.samples, rooms.engine.version
                metrics |= rooms.learner.update(chosen, loss, state.step, rooms.mini_batch, advance, version)
            warn_of_skips(metrics, state.step, rooms.console.warn)
            with clock.stage("weights"):
                rooms.publish(rooms.engine.version + 1)
        metrics |= experience.metrics() | rooms.control.observe(experience, weights, metrics)
        return metrics | advantage_metrics(samples)

    def validate(self) -> dict[str, float]:
        """Sample and score the validation prompts; {} when there are none."""
        rooms, state = self.rooms, self.state
        if rooms.val_loader is None:
            return {}
        assert rooms.scorer is not None, "every run that validates has a reward function"
        params = validation_params(val_rollout(self.config), self.config.data.max_response_length)
        clock = StepClock(rooms.console)
        samples: list[Sample] = []
        with clock.stage("validate"):
            for prompts in rooms.val_loader:
                drawn = self.rollout(clock, prompts, params, first_id=len(samples))
                rooms.scorer.score(drawn)
                samples += drawn
        rooms.scorer.require_scores(samples, f"validation at step {state.step}")
        metrics = summarise(samples, params.n) | {"timing_s/validate": clock.seconds["validate"]}
        state.note_validation(metrics)
        rooms.tracker.samples(state.step, "val", samples)
        self._shown = samples[:: params.n][: self.config.trainer.val_generations_to_log]
        return metrics

    def report(self, metrics: dict[str, float]) -> None:
        """Send a step's metrics, and the generations of its validation, wherever the config wants them."""
        if metrics:  # a run without validation data has nothing to say before its first step
            self.rooms.tracker.log(self.state.step, metrics)
        if self._shown:
            self.rooms.tracker.table(self.state.step, self._shown)
            self._shown = []

    def rollout(
        self, clock: StepClock, prompts: Sequence[Prompt], params: SamplingParams, first_id: int
    ) -> list[Sample]:
        """n samples for each prompt, timed; their ids name them for the random numbers."""
        ids = range(first_id, first_id + len(prompts) * params.n, params.n)
        with clock.stage("rollout", len(prompts) * params.n) as advance:
            return self.rooms.generate(prompts, params, ids, advance)
