"""State that a run carries from step to step, and the files of a checkpoint that hold it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from whet.data.loader import PromptLoader
from whet.errors import RewardsFailedError, UserError
from whet.model.modality import ADAPTER_FOLDER
from whet.training.model_folder import ModelFolder
from whet.types import Group


class Saved(Protocol):
    """A model that is trained and saved: the policy or the critic."""

    def save(self, folder: Path, tokenizer: Any, model_only: bool) -> None:
        """Write weights and optimizer."""

    def load_optimizer(self, folder: Path) -> None:
        """Read the optimizer back."""


@dataclass(slots=True)
class RunState:
    """Everything besides weights, optimizer and data position that the next step depends on."""

    step: int = 0
    before: dict[str, float] = field(default_factory=dict)  # the first validation
    latest: dict[str, float] = field(default_factory=dict)  # the last one

    def note_validation(self, metrics: Mapping[str, float]) -> None:
        """Remember the first and the last validation for the closing lines and for the best checkpoint."""
        scores = {name: value for name, value in metrics.items() if name.startswith("val/")}
        self.before = self.before or scores
        self.latest = scores | {"step": self.step}


@dataclass(slots=True)
class TrainerState(RunState):
    """The same of a run that samples."""

    samples_drawn: int = 0  # names samples for their random numbers
    carried: list[Group] = field(default_factory=list)  # scored, and not trained on yet
    empty_steps: int = 0  # the latest steps in a row for which a filter left nothing

    @contextmanager
    def rewound_on_failure(self, loader: PromptLoader[Any] | None) -> Iterator[None]:
        """Run the part of a step that changes no weights; on `RewardsFailedError`, go back to before it.

        The state can then be saved as the end of the step before.
        """
        position = loader.state_dict() if loader else None
        drawn, carried, empty = self.samples_drawn, list(self.carried), self.empty_steps
        generators = random_state()
        try:
            yield
        except RewardsFailedError:
            self.step -= 1
            self.samples_drawn, self.carried, self.empty_steps = drawn, carried, empty
            if loader is not None and position is not None:
                loader.load_state_dict(position)
            set_random_state(generators)
            raise


def save_models(folder: Path, trained: Mapping[str, Saved], model: ModelFolder, model_only: bool) -> None:
    """Write every trained model, and what reads images and text beside the policy."""
    for name, part in trained.items():
        part.save(folder / name, model.tokenizer, model_only)
    if model.processor is not None:
        adapters = folder / "actor" / ADAPTER_FOLDER
        model.processor.save_pretrained(adapters if adapters.is_dir() else folder / "actor" / "huggingface")


def restore_optimizers(folder: Path, trained: Mapping[str, Saved], warn: Callable[[str], None]) -> None:
    """Read every optimizer that a checkpoint holds."""
    for name, part in trained.items():
        if (folder / name / "optimizer.pt").exists():
            part.load_optimizer(folder / name)
        elif not (folder / name).is_dir():
            warn(f"{folder} was made by a run without a {name}: the {name} starts afresh")
    if not (folder / "actor" / "optimizer.pt").exists():
        warn(
            f"{folder} was saved with trainer.save_model_only: the optimizer starts afresh, so the run "
            "goes on but not bit for bit as it would have"
        )


def random_state() -> dict[str, Any]:
    """Return the state of the generators that this process draws from."""
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def set_random_state(state: dict[str, Any]) -> None:
    """Continue the sequences of random numbers that `random_state` noted."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


def restore_random(file: Path) -> None:
    """Continue the sequences of random numbers that a checkpoint holds."""
    from whet.model import torch_file

    rng = torch_file.load(file)
    try:
        set_random_state(rng)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{file} does not hold random states ({error}); choose another checkpoint") from error
