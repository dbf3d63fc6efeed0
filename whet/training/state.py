"""What a run remembers between steps, and how it is saved, restored and closed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from whet.errors import UserError
from whet.model import lora, torch_file
from whet.training import parts
from whet.training.groups import load_groups, save_groups
from whet.types import Group

if TYPE_CHECKING:
    from whet.training.components import Rooms


@dataclass(slots=True)
class TrainerState:
    """Everything besides weights, optimizer and data position that the next step depends on."""

    step: int = 0
    samples_drawn: int = 0  # names samples for their random numbers
    carried: list[Group] = field(default_factory=list)  # scored, and not trained on yet
    empty_steps: int = 0  # the latest steps in a row for which a filter left nothing
    before: dict[str, float] = field(default_factory=dict)  # the first validation
    latest: dict[str, float] = field(default_factory=dict)  # the last one

    def begin_stage(self, rooms: Rooms) -> None:
        """Go on to the next stage; groups sampled under the last one's settings are left behind."""
        self.carried = []
        rooms.stages.announce_end()
        if not rooms.stages.is_over:
            rooms.enter_stage()

    def note_validation(self, metrics: dict[str, float]) -> None:
        """Remember the first and the last validation for the closing lines and for the best checkpoint."""
        scores = {name: value for name, value in metrics.items() if name.startswith("val/")}
        self.before = self.before or scores
        self.latest = scores | {"step": self.step}

    def save(self, rooms: Rooms) -> None:
        """Write a checkpoint of this step."""
        meta: dict[str, Any] = {
            "samples_drawn": self.samples_drawn,
            "before": self.before,
            "latest": self.latest,
            "version": rooms.engine.version,
            "empty_steps": self.empty_steps,
            "loader": rooms.loader.state_dict() if rooms.loader else None,
            "control": rooms.control.state_dict(),
            "stages": rooms.stages.state_dict(),
            "config": rooms.stages.base.stored(),
        }
        if self.latest.get("step") == self.step:  # only what was validated at this very step can be called best
            score = self.latest.get("val/accuracy", self.latest["val/reward"])
            meta["score"] = score if math.isfinite(score) else None
        with rooms.console.stage("save"), rooms.checkpoints.writing(self.step, meta) as folder:
            for name, part in rooms.trained.items():
                part.save(folder / name, rooms.tokenizer, rooms.config.trainer.save_model_only)
            if rooms.processor is not None:
                adapters = folder / "actor" / lora.FOLDER
                rooms.processor.save_pretrained(adapters if adapters.is_dir() else folder / "actor" / "huggingface")
            if self.carried:
                save_groups(self.carried, folder / "carried.json")
            torch.save({"torch": torch.get_rng_state(), "python": random.getstate()}, folder / "rng.pt")

    def restore(self, rooms: Rooms) -> None:
        """Continue from the checkpoint that the rooms were built from, if any: they have its weights and position."""
        checkpoint = rooms.checkpoint
        rooms.publish(checkpoint.meta["version"] if checkpoint else 0)
        if checkpoint is None:
            return
        meta = checkpoint.meta
        self.step, self.samples_drawn = checkpoint.step, meta["samples_drawn"]
        self.before, self.latest = meta["before"], meta["latest"]
        self.empty_steps = meta["empty_steps"]
        rooms.stages.load_state_dict(meta["stages"])
        if rooms.stages.is_over:
            rooms.end_at(self.step)
        parts.configure(rooms, rooms.stages.config)
        rooms.control.load_state_dict(meta["control"])
        if rooms.loader is not None and (checkpoint.path / "carried.json").exists():
            self.carried = load_groups(checkpoint.path / "carried.json", rooms.loader)
        self._restore_optimizers(rooms, checkpoint.path)
        _restore_random(checkpoint.path / "rng.pt")

    def _restore_optimizers(self, rooms: Rooms, folder: Path) -> None:
        for name, part in rooms.trained.items():
            if (folder / name / "optimizer.pt").exists():
                part.load_optimizer(folder / name)
            elif not (folder / name).is_dir():
                rooms.console.warn(f"{folder} was made by a run without a {name}: the {name} starts afresh")
        if not (folder / "actor" / "optimizer.pt").exists():
            rooms.console.warn(
                f"{folder} was saved with trainer.save_model_only: the optimizer starts afresh, so the run "
                "goes on but not bit for bit as it would have"
            )

    def say_goodbye(self, rooms: Rooms, seconds: float) -> None:
        """The closing lines."""
        resume = None
        if self.step < rooms.total_steps and not rooms.config.trainer.val_only:
            resume = "the same command goes on from here" if self.step else "nothing was trained yet; start it again"
        rooms.console.done(self.step, rooms.folder.path, seconds, self.before, self.latest, resume)


def _restore_random(file: Path) -> None:
    """Continue the sequences of random numbers that `save` noted."""
    rng = torch_file.load(file)
    try:
        torch.set_rng_state(rng["torch"])
        version, internal, gauss = rng["python"]
        random.setstate((version, tuple(internal), gauss))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{file} does not hold random states ({error}); choose another checkpoint") from error
