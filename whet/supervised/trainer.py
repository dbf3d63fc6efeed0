"""A step of supervised learning: rows → demonstrations → update. The loop around it is `training/fit.py`."""

from __future__ import annotations

import math
from typing import Any

from whet.config.files import anchored
from whet.learn.protocol import Learner
from whet.supervised.likelihood import NO_VERSION, NegativeLogLikelihood, summed_loss
from whet.tracking.console import Console
from whet.training.checked import CheckedModel
from whet.training.data import Loaders
from whet.training.fit import FitLoop
from whet.training.interrupt import Interrupt
from whet.training.measure import StepClock
from whet.training.state import RunState, restore_optimizers, save_models
from whet.training.store import RunStore
from whet.types import Sample

JOB = "sft"


class SftTrainer(FitLoop):
    """Trains a model on demonstrations. Nothing is drawn at random."""

    def __init__(
        self,
        run: CheckedModel,
        data: Loaders[list[Sample]],
        store: RunStore,
        learner: Learner,
        interrupt: Interrupt,
        console: Console,
        total_steps: int,
    ) -> None:
        super().__init__(run.config, store, interrupt, console, total_steps)
        self.model, self.data, self.learner, self.state = run.model, data, learner, RunState()

    @property
    def trained(self) -> dict[str, Learner]:
        """The model, under the name that it has in a checkpoint."""
        return {"actor": self.learner}

    def train_step(self) -> dict[str, float]:
        """Make one update; return its metrics."""
        loader, step = self.data.train, self.state.step
        assert loader is not None, "a run that trains has training data"
        clock = StepClock(self.console)
        with clock.stage("data"):
            samples = [sample for row in loader.next_batch() for sample in row]
        loss = NegativeLogLikelihood.of(samples, self.config)
        with clock.stage("update", len(samples)) as advance:
            metrics = self.learner.update(samples, loss, step, len(samples), advance, NO_VERSION)
        measured = clock.metrics(samples, drawn=[])
        del measured["perf/rollout_tokens_per_s"]
        sizes = {"batch/demonstrations": len(samples), "batch/tokens_learned": sum(sum(s.mask) for s in samples)}
        return metrics | sizes | measured | {"train/step": step, "train/epoch": loader.epoch}

    def validate(self) -> dict[str, float]:
        """Return the mean loss over the tokens of the validation data; {} when there is none."""
        loader = self.data.val
        if loader is None:
            return {}
        clock, total, tokens = StepClock(self.console), 0.0, 0
        with clock.stage("validate", len(loader)) as advance:
            for rows in loader:
                samples = [sample for row in rows for sample in row]
                loss, learned = summed_loss(samples, self.learner.log_probs(samples))
                total, tokens = total + loss, tokens + learned
                advance(len(rows))
        loss = total / tokens
        scores = {"val/loss": loss, "val/perplexity": math.exp(min(loss, 700.0))}  # e^710 is more than a float holds
        self.state.note_validation(scores)
        return scores | {"timing_s/validate": clock.seconds["validate"]}

    def save(self) -> None:
        """Write a checkpoint of this step; the best is the one with the least validation loss."""
        state, loader = self.state, self.data.train
        meta: dict[str, Any] = {
            "job": JOB,
            "before": state.before,
            "latest": state.latest,
            "loader": loader.state_dict() if loader else None,
            "config": anchored(self.config).stored(),
        }
        if state.latest.get("step") == state.step and math.isfinite(state.latest["val/loss"]):
            meta["score"] = -state.latest["val/loss"]
        with self.console.stage("save"), self.store.checkpoints.writing(state.step, meta) as folder:
            save_models(folder, self.trained, self.model, self.config.trainer.save_model_only)

    def restore(self) -> None:
        """Continue from the checkpoint that the model was built from, if any."""
        checkpoint, state = self.store.checkpoint, self.state
        if checkpoint is not None:
            state.step = checkpoint.step
            state.before, state.latest = checkpoint.meta["before"], checkpoint.meta["latest"]
            restore_optimizers(checkpoint.path, self.trained, self.console.warn)
