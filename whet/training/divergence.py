"""Runs whose numbers are no longer finite: they stop with an error, and are never saved over a good state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from whet.checkpoint.judging import judge
from whet.checkpoint.manifest import Checkpoint
from whet.config import Config
from whet.errors import DivergedError, UserError

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
