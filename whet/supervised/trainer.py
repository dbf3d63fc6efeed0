"""The loop of supervised learning: rows → demonstrations → update, and validation and checkpoints around it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from whet.model import lora
from whet.supervised.components import JOB, SftRooms
from whet.supervised.likelihood import NegativeLogLikelihood, summed_loss
from whet.supervised.ranks import NO_VERSION
from whet.training.measure import StepClock
from whet.types import Sample


@dataclass(slots=True)
class SftState:
    """What the next step depends on besides weights, optimizer and data position; nothing is drawn at random."""

    step: int = 0
    before: dict[str, float] = field(default_factory=dict)  # the first validation
    latest: dict[str, float] = field(default_factory=dict)  # the last one


class SftTrainer:
    """Runs a config's rooms until the last step, an interrupt, or an error."""

    def __init__(self, rooms: SftRooms) -> None:
        self.rooms, self.state = rooms, SftState()

    def fit(self) -> None:
        """Train from wherever the run stands to its last step."""
        rooms, state, config = self.rooms, self.state, self.rooms.config.trainer
        self.restore()
        started = time.perf_counter()
        wanted = config.val_only or (config.val_before_train and state.step == 0)
        if wanted and (metrics := self.validate()):
            rooms.tracker.log(state.step, metrics)
        while state.step < rooms.total_steps and not rooms.interrupt.asked:
            state.step += 1
            rooms.tracker.log(state.step, self.train_step() | self.validate_if_due())
            last = state.step == rooms.total_steps
            if last or rooms.interrupt.asked or (config.save_freq > 0 and state.step % config.save_freq == 0):
                self.save()
        resume = None
        if state.step < rooms.total_steps:
            resume = "the same command goes on from here" if state.step else "nothing was trained yet; start it again"
        seconds = time.perf_counter() - started
        rooms.console.done(state.step, rooms.folder.path, seconds, state.before, state.latest, resume)

    def train_step(self) -> dict[str, float]:
        """One update; returns its metrics."""
        rooms, step = self.rooms, self.state.step
        assert rooms.loader is not None, "a run that trains has training data"
        clock = StepClock(rooms.console)
        with clock.stage("data"):
            samples = [sample for row in rooms.loader.next_batch() for sample in row]
        loss = NegativeLogLikelihood.of(samples, rooms.config)
        with clock.stage("update", len(samples)) as advance:
            metrics = rooms.learner.update(samples, loss, step, len(samples), advance, NO_VERSION)
        measured = clock.metrics(samples, drawn=[])
        del measured["perf/rollout_tokens_per_s"]
        sizes = {"batch/demonstrations": len(samples), "batch/tokens_learned": sum(sum(s.mask) for s in samples)}
        return metrics | sizes | measured | {"train/step": step, "train/epoch": rooms.loader.epoch}

    def validate_if_due(self) -> dict[str, float]:
        """Every `val_freq` steps, and after the last step of a run that validates at all."""
        config, step = self.rooms.config.trainer, self.state.step
        if step == self.rooms.total_steps:
            due = config.val_freq > 0 or config.val_before_train
        else:
            due = config.val_freq > 0 and step % config.val_freq == 0
        return self.validate() if due else {}

    def validate(self) -> dict[str, float]:
        """Mean loss over the tokens of the validation data; {} when there is none."""
        rooms, state = self.rooms, self.state
        if rooms.val_loader is None:
            return {}
        clock, total, tokens = StepClock(rooms.console), 0.0, 0
        with clock.stage("validate", len(rooms.val_loader)) as advance:
            for rows in rooms.val_loader:
                samples: list[Sample] = [sample for row in rows for sample in row]
                loss, learned = summed_loss(samples, rooms.learner.log_probs(samples))
                total, tokens = total + loss, tokens + learned
                advance(len(rows))
        loss = total / tokens
        scores = {"val/loss": loss, "val/perplexity": math.exp(min(loss, 700.0))}  # e^710 is more than a float holds
        state.before = state.before or scores
        state.latest = scores | {"step": state.step}
        return scores | {"timing_s/validate": clock.seconds["validate"]}

    def save(self) -> None:
        """Write a checkpoint of this step; the best is the one with the least validation loss."""
        rooms, state = self.rooms, self.state
        meta: dict[str, Any] = {
            "job": JOB,
            "before": state.before,
            "latest": state.latest,
            "loader": rooms.loader.state_dict() if rooms.loader else None,
            "config": rooms.config.to_dict(),
        }
        if state.latest.get("step") == state.step and math.isfinite(state.latest["val/loss"]):
            meta["score"] = -state.latest["val/loss"]
        with rooms.console.stage("save"), rooms.checkpoints.writing(state.step, meta) as folder:
            rooms.learner.save(folder / "actor", rooms.tokenizer, rooms.config.trainer.save_model_only)
            if rooms.processor is not None:
                adapters = folder / "actor" / lora.FOLDER
                rooms.processor.save_pretrained(adapters if adapters.is_dir() else folder / "actor" / "huggingface")

    def restore(self) -> None:
        """Continue from the checkpoint that the rooms were built from, if any: they have its weights and position."""
        rooms, checkpoint = self.rooms, self.rooms.checkpoint
        if checkpoint is None:
            return
        state, meta = self.state, checkpoint.meta
        state.step, state.before, state.latest = checkpoint.step, meta["before"], meta["latest"]
        if (checkpoint.path / "actor" / "optimizer.pt").exists():
            rooms.learner.load_optimizer(checkpoint.path / "actor")
        else:
            rooms.console.warn(
                f"{checkpoint.path} was saved with trainer.save_model_only: the optimizer starts afresh, so the run "
                "goes on but not bit for bit as it would have"
            )
