"""One place to send metrics, samples and tables; it passes them to every logger of the run.

A tracker out of reach or a full disk must not cost a training run: a logger that fails while training is reported
once and training goes on. Everything that can be wrong beforehand is an error when the tracker is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.errors import UserError
from whet.tracking.console import Console
from whet.tracking.logger import Logger, RunInfo, open_logger, short
from whet.tracking.run_folder import RunFolder, write_samples
from whet.types import Sample

if TYPE_CHECKING:
    from whet.tracking.token_records import TokenFiles, TokenRecord


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
        token_limit: int = 500,
    ) -> None:
        """Build every logger named in `trainer.logger`; a missing package or a refused login is a `UserError`.

        `resolve` finds the file of a logger that is named as `path.py:CLASS`. `token_limit` are megabytes.
        """
        self._folder = folder
        self._console = console
        self._log_samples = log_samples
        self._log_token_log_probs = log_token_log_probs
        self._token_limit = token_limit
        self._token_files: TokenFiles | None = None
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

    def tokens(self, step: int, records: Sequence[TokenRecord]) -> None:
        """Write what an update knew of the tokens of some samples to `tokens/train_{step}.parquet`."""
        if self._token_files is None:
            from whet.tracking.token_records import TokenFiles

            limit = self._token_limit * 1_000_000
            self._token_files = TokenFiles(self._folder.tokens, limit, self._folder.pictures)
        self._attempt("tokens", partial(self._token_files.write, step, records))

    def timeline(self, record: Mapping[str, Any]) -> None:
        """Append when each part of a step began and ended to `timeline.jsonl`."""

        def append() -> None:  # without waiting for the disk: a power cut may cost the last lines
            with (self._folder.path / "timeline.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")

        if self._log_samples:
            self._attempt("timeline", append)

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
