"""Step and validation lines in the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.tracking.logger import RunInfo
from whet.types import Sample


class ConsoleLogger:
    """A line for the training metrics of a step and one for its validation, whichever are there."""

    def __init__(self, run: RunInfo) -> None:
        self._console = run.console

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the step's line, then the validation's."""
        if any(name.startswith(("reward/", "actor/")) for name in metrics):
            self._console.step(step, metrics)
        if any(name.startswith("val/") for name in metrics):
            self._console.validation(step, metrics)

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Print the generations."""
        self._console.samples_table(samples)

    def close(self) -> None:
        """The console outlives its logger: closing lines come later."""


LOGGER = ConsoleLogger
