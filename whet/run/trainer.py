"""The loop: prompts → samples → rewards → advantages → update, and what surrounds it.

`Trainer.fit` reads like the picture in docs/architecture.md. How any of the rooms does its part is not known here, and
no algorithm has its name here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from whet.config import val_rollout
from whet.rollout.engine import SamplingParams
from whet.run.experience import make_experience, sampler_log_probs
from whet.run.measure import StepClock, batch_metrics
from whet.run.objective import objective
from whet.run.rooms import Rooms
from whet.run.signals import compute_signals
from whet.run.state import TrainerState
from whet.run.validation import sampling_params, summarise, validation_params
from whet.run.values import update_critic
from whet.types import Prompt, Sample


class Trainer:
    """Runs a config's rooms until the last step, an interrupt, or an error."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms, self.config = rooms, rooms.config
        self.state = TrainerState()
        self._shown: list[Sample] = []  # generations of the latest validation that no logger has seen yet
        max_tokens = self.config.data.max_response_length
        self._train_params = sampling_params(self.config.worker.rollout, max_tokens)
        self._val_params = validation_params(val_rollout(self.config), max_tokens)

    def fit(self) -> None:
        """Train from wherever the run stands to its last step."""
        rooms, state, config = self.rooms, self.state, self.config.trainer
        state.restore(rooms)
        started = time.perf_counter()
        if config.val_only or (config.val_before_train and state.step == 0):
            self.report(self.validate())
        while state.step < rooms.total_steps and not config.val_only and not rooms.interrupt.asked:
            state.step += 1
            metrics = self.train_step()
            last = state.step == rooms.total_steps
            if self.validation_is_due(last):
                metrics |= self.validate()
            self.report(metrics)
            if last or rooms.interrupt.asked or (config.save_freq > 0 and state.step % config.save_freq == 0):
                state.save(rooms)
        state.say_goodbye(rooms, time.perf_counter() - started)

    def validation_is_due(self, last: bool) -> bool:
        """Every `val_freq` steps, and after the last step of a run that validates at all."""
        config = self.config.trainer
        if last:
            return config.val_freq > 0 or config.val_before_train
        return config.val_freq > 0 and self.state.step % config.val_freq == 0

    def train_step(self) -> dict[str, float]:
        """One round through the rooms; returns its metrics."""
        rooms, state = self.rooms, self.state
        clock = StepClock(rooms.console)
        samples = self.rollout(clock, rooms.next_prompts(), self._train_params, first_id=state.samples_drawn)
        state.samples_drawn += len(samples)
        with clock.stage("reward", len(samples)) as advance:
            metrics = rooms.scorer.score(samples, advance)
        old = sampler_log_probs(samples)
        if rooms.recompute_old_log_probs:
            with clock.stage("old_log_probs"):
                old = rooms.learner.log_probs(samples)
        ref = None
        if rooms.reference is not None:
            with clock.stage("ref_log_probs"):
                ref = rooms.reference.log_probs(samples)
        computed = compute_signals(rooms, samples, clock)
        experience, kl_metrics = make_experience(samples, old, ref, self.config.algorithm, computed)
        metrics |= update_critic(rooms, experience, state.step, clock)
        if state.step > self.config.trainer.critic_warmup:
            with clock.stage("update", len(samples) * self.config.worker.actor.ppo_epochs) as advance:
                loss = objective(experience, self.config)
                metrics |= rooms.learner.update(samples, loss, state.step, rooms.mini_batch, advance)
            rooms.engine.version += 1
        rooms.tracker.samples(state.step, "train", samples)
        return metrics | kl_metrics | batch_metrics(samples) | clock.metrics(samples) | rooms.position(state.step)

    def validate(self) -> dict[str, float]:
        """Sample and score the validation prompts; {} when there are none."""
        rooms, params, state = self.rooms, self._val_params, self.state
        if rooms.val_loader is None:
            return {}
        clock = StepClock(rooms.console)
        samples: list[Sample] = []
        with clock.stage("validate"):
            for prompts in rooms.val_loader:
                drawn = self.rollout(clock, prompts, params, first_id=len(samples))
                rooms.scorer.score(drawn)
                samples += drawn
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
