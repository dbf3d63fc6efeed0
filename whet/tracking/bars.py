"""Live bars on a terminal: one for each stage that is under way, and one for the whole run above them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console as Screen
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from whet.tracking.progress import RunProgress, duration

CURVE_WIDTH = 16  # characters of the reward's curve beside the bar of the run


class Bars:
    """The bars of a run, which come and go with its stages."""

    def __init__(self, screen: Screen, run: RunProgress) -> None:
        self._screen, self._run = screen, run
        self._progress: Progress | None = None
        self._stages = 0

    @contextmanager
    def stage(self, name: str, total: int | None, total_steps: int) -> Iterator[Callable[[int], None]]:
        """Show a bar for the length of the block and yield the function that advances it."""
        progress = self._open(total_steps)
        task = progress.add_task(name, total=total, curve="")

        def advance(n: int = 1) -> None:
            progress.advance(task, n)

        try:
            yield advance
        finally:
            progress.remove_task(task)
            self._close()

    def _open(self, total_steps: int) -> Progress:
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description:<9}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                _Rate(),
                _Elapsed(),
                TextColumn("{task.fields[curve]}", style="green"),
                console=self._screen,
                transient=True,
                expand=True,
            )
            if self._run.step:
                self._add_run(self._progress, total_steps)
            self._progress.start()
        self._stages += 1
        return self._progress

    def _add_run(self, progress: Progress, total_steps: int) -> None:
        """Show the whole run above its stages."""
        run, left = self._run, self._run.left(total_steps)
        curve = run.sparkline(CURVE_WIDTH) if "utf" in (self._screen.encoding or "") else ""
        progress.add_task(
            "run",
            total=total_steps,
            completed=run.step,
            curve=curve,
            began=run.began,
            left="" if left is None else f"{duration(left)} left",
        )

    def _close(self) -> None:
        self._stages -= 1
        if self._stages == 0 and self._progress is not None:
            self._progress.stop()
            self._progress = None


class _Rate(ProgressColumn):
    """How many a second; of a whole run, the time that is left."""

    def render(self, task: Task) -> Text:
        if "left" in task.fields:
            return Text(task.fields["left"], style="cyan")
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f}/s", style="dim")


class _Elapsed(TimeElapsedColumn):
    """Time since a stage or the run began."""

    def render(self, task: Task) -> Text:
        if "began" not in task.fields:
            return super().render(task)
        return Text(str(timedelta(seconds=int(time.monotonic() - task.fields["began"]))), style="progress.elapsed")
