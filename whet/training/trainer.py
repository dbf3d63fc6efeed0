"""A step of reinforcement learning: prompts → samples → rewards → advantages → update.

`Trainer.train_step` reads like the picture in docs/architecture.md. The loop around it is `fit.py`. The trainer does
not know how the packages do their parts, and names no algorithm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from whet.config.files import anchored
from whet.errors import RewardsFailedError
from whet.learn.protocol import Trained
from whet.tracking.console import Console
from whet.tracking.requests import FOLDER, take_replicas
from whet.training.batch import open_batches
from whet.training.checked import CheckedRun
from whet.training.data import Loaders, draw_size
from whet.training.experience import make_experience, resampled
from whet.training.fit import FitLoop
from whet.training.interrupt import Interrupt
from whet.training.measure import StepClock, advantage_metrics
from whet.training.models import Models, trained_models
from whet.training.objective import Control, objective, warn_of_skips
from whet.training.rollouts import Rollouts, validate
from whet.training.signals import SignalInputs, compute_signals, old_log_probs, reference_log_probs, settle_log_probs
from whet.training.state import TrainerState, random_state, restore_optimizers, restore_random, save_models
from whet.training.store import RunStore
from whet.training.token_details import recorded_rows, token_records
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.protocol import SampleScorer
    from whet.training.episode_source import EpisodeSource


class Trainer(FitLoop):
    """Trains a policy on what its samples score."""

    state: TrainerState

    def __init__(
        self,
        run: CheckedRun,
        data: Loaders[Prompt],
        store: RunStore,
        models: Models,
        scorer: SampleScorer | None,
        interrupt: Interrupt,
        console: Console,
        total_steps: int,
        environments: EpisodeSource | None = None,
    ) -> None:
        """`scorer` is None where the caller or environments alone give scores."""
        super().__init__(run.config, store, interrupt, console, total_steps)
        self.data, self.model, self.stages, self.models = data, run.model, run.stages, models
        self.state, self.control = TrainerState(), Control(run.config)
        self.rollouts = Rollouts(run.config, models.engine, run.model.tokenizer, scorer, environments)
        state, folder = self.state, store.folder.path
        left = lambda: self.total_steps - state.step + 1  # noqa: E731
        self.batches = open_batches(run.config, self.rollouts, data.train, state, console, folder, left)
        self._stage_ended = False
        self._shown: list[Sample] = []  # generations of the latest validation that no logger has seen yet

    @property
    def trained(self) -> dict[str, Trained]:
        """The policy, and the critic where there is one."""
        return trained_models(self.models)

    def train_step(self) -> dict[str, float]:
        """Take one step; return its metrics."""
        state, clock = self.state, StepClock(self.console)
        if self.models.resize is not None and (asked := take_replicas(self.store.folder.path)) is not None:
            self.models.resize(asked)
        try:
            with self.batches.rewound_on_failure():
                batch = self.batches.make(self.config, clock)
        except RewardsFailedError as error:
            raise self.stopped(error) from None
        with self.batches.still():
            metrics = batch.metrics | (self.learn(batch.samples, clock) if batch.samples else {})
        shown = batch.samples + batch.dropped
        self.store.tracker.samples(state.step, "train", shown)
        self.store.tracker.timeline(clock.timeline(state.step, batch.groups))
        return metrics | clock.metrics(shown, batch.drawn) | self.position()

    def learn(self, samples: list[Sample], clock: StepClock) -> dict[str, float]:
        """Update the policy on scored samples; return what happened as metrics."""
        config, models, step = self.config, self.models, self.state.step
        if config.algorithm.demonstration_key is not None:
            from whet.training.demonstrated import with_demonstrations

            tokenizer, version = self.model.tokenizer, models.engine.version
            samples = with_demonstrations(samples, tokenizer, config, models.learner.log_probs, version)
        inputs = SignalInputs(config, models, self.rollouts, self.model.processor)
        old = old_log_probs(inputs, samples, clock)
        ref = reference_log_probs(inputs, samples, clock)
        computed = compute_signals(inputs, samples, old, step, clock)
        judged: dict[str, float] = {}
        if models.reward_model is not None:
            from whet.training.implicit_reward import update_reward_model

            assert ref is not None, "the reference is loaded for estimators that need it"
            found = update_reward_model(models.reward_model, config, samples, ref, step, clock)
            computed["process_rewards"], judged = found
        experience, metrics = make_experience(samples, old, ref, config.algorithm, computed, self.control.kl)
        metrics |= judged
        if models.teacher is not None and config.algorithm.distill.use == "loss":
            experience.teacher_samples = models.teacher.own_samples(samples)
        experience, drawn_anew = resampled(experience, config, step)
        metrics |= drawn_anew
        if models.critic is not None:
            from whet.training.values import update_critic

            metrics |= update_critic(models.critic, config, experience, step, clock)
        weights = self.control.coefficients(experience)
        settle_log_probs(inputs, [sample for group in self.state.carried for sample in group.samples])
        if step > config.trainer.critic_warmup:
            with clock.stage("update", len(samples) * config.worker.actor.ppo_epochs) as advance:
                loss = objective(experience, config, weights)
                mini_batch = config.worker.actor.global_batch_size * config.worker.rollout.n
                chosen, version = experience.samples, models.engine.version
                rows = recorded_rows(config.trainer, chosen)
                metrics |= models.learner.update(chosen, loss, step, mini_batch, advance, version, rows)
            if metrics.get("actor/update_skipped"):
                warn_of_skips(metrics, step, self.console.warn)
            with clock.stage("weights"):
                self.publish(models.engine.version + 1)
            if rows:
                records = token_records(samples, experience, rows, models.learner.recorded())
                self.store.tracker.tokens(step, records)
        if self.batches.history is not None and not config.algorithm.rollout_correction.active:
            self.batches.history.relabel(samples, old)
        metrics |= self.control.observe(experience, weights, metrics)
        return metrics | advantage_metrics(samples)

    def requests(self) -> list[str]:
        """Answer draws that the engine was asked for, and return what else somebody asked the run for."""
        if (self.store.folder.path / FOLDER).exists():
            from whet.training.live_draws import answer_draws

            size, step = self.model.config.get_text_config().vocab_size, self.state.step
            if answer_draws(self.store.folder.path, self.models.engine, self.config, size, step):
                self.console.note(f"drew samples that were asked for after step {step}")
                if not self.rollouts.stays_open:
                    self.models.engine.release()
        return super().requests()

    def validate(self) -> dict[str, float]:
        """Sample and score the validation prompts; {} when there are none."""
        if self.data.val is None:
            return {}
        step = self.state.step
        samples, metrics = validate(self.rollouts, self.data.val, self.config, step, StepClock(self.console))
        self.state.note_validation(metrics)
        self.store.tracker.samples(step, "val", samples)
        self._shown = [s for s in samples if s.index == 0][: self.config.trainer.val_generations_to_log]
        return metrics

    def report(self, metrics: dict[str, float]) -> None:
        """Send a step's metrics, and the generations of its validation, wherever the config wants them."""
        super().report(metrics)
        if self._shown:
            self.store.tracker.table(self.state.step, self._shown)
            self._shown = []

    def position(self) -> dict[str, float]:
        """Return how far the run is, as metrics."""
        epoch = self.data.train.epoch if self.data.train else 0
        return {"train/step": self.state.step, "train/epoch": epoch} | self.stages.metrics()

    def step_measured(self, metrics: dict[str, float]) -> None:
        """Let the stage see the metrics; the end of the last stage is that of the run."""
        self._stage_ended = self.stages.observe(metrics)
        if self.stages.is_over:
            self.end_at(self.state.step)
        self._end_if_learned()

    def _end_if_learned(self) -> None:
        """Make this the last step where too few prompts are left for another (`data.curriculum.retire_at`)."""
        history, step = self.batches.history, self.state.step
        if history is not None and step < self.total_steps and (learned := history.learned()):
            self.console.warn(f"{learned}. The run ends with step {step}.")
            self.end_at(step)

    def step_reported(self) -> None:
        """Go on to the next stage; groups sampled under the last one's settings are left behind."""
        if self._stage_ended:
            self.state.carried = []
            self.stages.announce_end()
            if not self.stages.is_over:
                self.configure()
                self.stages.announce()

    def publish(self, version: int) -> None:
        """Give the engine the policy's weights as they are now, under this version."""
        with self.models.learner.engine_weights() as weights:
            self.models.engine.load_weights(weights, version)

    def configure(self) -> None:
        """Go on under the config of the current stage; nothing is loaded or lost by it."""
        config = self.config = self.rollouts.config = self.stages.config
        self.models.configure(config)
        self.batches.configure(config)
        if self.data.train is not None:
            self.data.train.resize(draw_size(config, len(self.data.train)))
        self.control.enter(config)

    def save(self) -> None:
        """Write a checkpoint of this step."""
        state, loader = self.state, self.data.train
        meta: dict[str, Any] = {
            "samples_drawn": state.samples_drawn,
            "before": state.before,
            "latest": state.latest,
            "version": self.models.engine.version,
            "empty_steps": state.empty_steps,
            "loader": loader.state_dict() if loader else None,
            "control": self.control.state_dict(),
            "stages": self.stages.state_dict(),
            "config": anchored(self.stages.base).stored(),
        }
        if state.latest.get("step") == state.step:  # only what was validated at this very step can be called best
            score = state.latest.get("val/accuracy", state.latest["val/reward"])
            meta["score"] = score if math.isfinite(score) else None
        with self.console.stage("save"), self.store.checkpoints.writing(state.step, meta) as folder:
            save_models(folder, self.trained, self.model, self.config.trainer.save_model_only)
            self.batches.save(folder)
            torch.save(random_state(), folder / "rng.pt")

    def restore(self) -> None:
        """Continue from the checkpoint that the models were built from, if any, under the config of its stage."""
        checkpoint, state = self.store.checkpoint, self.state
        self.publish(checkpoint.meta["version"] if checkpoint else 0)
        if checkpoint is not None:
            meta = checkpoint.meta
            state.step, state.samples_drawn = checkpoint.step, meta["samples_drawn"]
            state.before, state.latest, state.empty_steps = meta["before"], meta["latest"], meta["empty_steps"]
            self.stages.load_state_dict(meta["stages"])
            if self.stages.is_over:
                self.end_at(state.step)
            self.configure()
            self.control.load_state_dict(meta["control"])
            self.batches.load(checkpoint.path)
            self._end_if_learned()
            restore_optimizers(checkpoint.path, self.trained, self.console.warn)
            restore_random(checkpoint.path / "rng.pt")
        else:
            self.configure()
        self.stages.announce()
