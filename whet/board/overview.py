"""Runs in a table, their curves and findings, as the page shows them."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.board.metrics import MetricsFiles, Rows, curves, latest, names, number, sparkline
from whet.board.runs import Runs
from whet.doctor.examine import Diagnosis, examine, examine_samples, read_findings, with_written
from whet.doctor.printing import plain
from whet.errors import UserError
from whet.plots.runs import read_settings
from whet.tracking.status import read_status

EXAMINING_SECONDS = 0.4  # of a request for all runs
_SHOWN_SETTINGS = ("worker.actor.model.model_path", "algorithm.adv_estimator", "worker.actor.optim.lr")


class Overview:
    """Tables of runs. Safe to use from several threads."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._files = runs, MetricsFiles()
        self._diagnosed: dict[Path, tuple[Rows, list[Diagnosis]]] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run: name, state, last step, latest values, sparkline, number of findings.

        Runs that are not examined yet when a while has passed since the first have None: the next request goes on with
        them.
        """
        end, rows = math.inf, []
        for run, folder in self._runs.find().items():
            rows.append(self._row(run, folder, end))
            end = min(end, time.monotonic() + EXAMINING_SECONDS)
        return rows

    def curves(self, folder: Path, wanted: list[str]) -> dict[str, Any]:
        """Return the names of all metrics of a run, and the curves of those asked for."""
        rows = self._files.read(folder)
        return {"names": names(rows), **curves(rows, wanted)}

    def at(self, folder: Path, step: int) -> dict[str, float]:
        """Return the finite metrics of a step."""
        row: Mapping[str, Any] = next((each for each in self._files.read(folder) if each["step"] == step), {})
        return {name: value for name in row if name != "step" and (value := number(row[name])) is not None}

    def findings(self, folder: Path) -> list[dict[str, object]]:
        """Return what is wrong with a run, with the numbers behind it."""
        found = self._diagnoses(folder, self._files.read(folder), _settings(folder))
        return [plain(each) for each in found]

    def _row(self, run: str, folder: Path, end: float) -> dict[str, Any]:
        rows, settings = self._files.read(folder), _settings(folder)
        with self._lock:
            known = self._diagnosed.get(folder, (None, []))[0] is rows
        found = self._diagnoses(folder, rows, settings) if known or time.monotonic() < end else None
        return {
            "id": run,
            "name": self._runs.name(folder),
            "folder": str(folder),
            "status": read_status(folder),
            "step": rows[-1]["step"] if rows else None,
            "max_steps": settings.get("trainer.max_steps"),
            "latest": latest(rows),
            "spark": sparkline(rows),
            "findings": None if found is None else len(found),
            "settings": {name: str(settings[name]) for name in _SHOWN_SETTINGS if settings.get(name) is not None},
        }

    def _diagnoses(self, folder: Path, rows: Rows, settings: Mapping[str, Any]) -> list[Diagnosis]:
        """Examine a run once for each state of its metrics; what it wrote down itself is read every time."""
        with self._lock:
            known = self._diagnosed.get(folder)
        if known is None or known[0] is not rows:  # the same rows are the same object until the file changes
            # Samples are read again when a step was logged: rules look at a few files of bounded size.
            known = (rows, sorted([*examine(rows, settings), *examine_samples(folder)], key=_step))
            with self._lock:
                self._diagnosed[folder] = known
        return with_written(known[1], read_findings(folder))


def _step(diagnosis: Diagnosis) -> int:
    return diagnosis.finding.step


def _settings(folder: Path) -> Mapping[str, Any]:
    """Return a run's flat config; {} where it cannot be read, which the view of configs says."""
    with contextlib.suppress(UserError):
        return read_settings(folder / "config.yaml")
    return {}
