"""One place to send metrics, samples and tables; it passes them to every logger of the run.

A tracker out of reach or a full disk must not cost a training run: a logger that fails while training is reported
once and training goes on. Everything that can be wrong beforehand is an error when the tracker is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.tracking.console import Console
from whet.tracking.logger import Logger, RunInfo, open_logger, short
from whet.tracking.run_folder import RunFolder, write_samples
from whet.types import Sample


class Tracker:
    """Metrics, samples and validation tables of one run."""

    def __init__(
        self,
        loggers: Sequence[str],
        folder: RunFolder,
        console: Console,
        project: str,
        experiment: str,
        settings: dict[str, Any] | None = None,
        log_samples: bool = True,
        log_token_log_probs: bool = False,
        resolve: Callable[[str], Path] = Path,
    ) -> None:
        """Build every logger named in `trainer.logger`; a missing package or a refused login is a `UserError`.

        `resolve` finds the file of a logger that is named as `path.py:CLASS`.
        """
        self._folder = folder
        self._console = console
        self._log_samples = log_samples
        self._log_token_log_probs = log_token_log_probs
        self._reported: set[str] = set()
        self._loggers: dict[str, Logger] = {}
        run = RunInfo(folder.path, project, experiment, console, settings or {})
        try:
            for name in loggers:
                self._loggers[name] = open_logger(name, run, resolve)
        except UserError:
            self.close()
            raise

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step, those of its validation included."""
        for name, logger in self._loggers.items():
            self._attempt(name, partial(logger.log, step, metrics))

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Write every sample of a step to `samples/{split}_{step}.parquet`."""
        if not self._log_samples:
            return
        path = self._folder.samples / f"{split}_{step:06d}.parquet"
        self._attempt("samples", partial(write_samples, path, step, samples, self._log_token_log_probs))

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Show a few generations of a validation in every logger."""
        for name, logger in self._loggers.items():
            self._attempt(name, partial(logger.table, step, samples))

    def close(self) -> None:
        """Flush and close every logger."""
        for name, logger in self._loggers.items():
            self._attempt(name, logger.close)
        self._loggers = {}

    def _attempt(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            if name not in self._reported:
                self._reported.add(name)
                self._console.warn(f"logging to {name} failed, training goes on without it: {short(error)}")
