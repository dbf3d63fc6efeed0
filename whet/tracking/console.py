"""What a person sees while a run goes: bars that come and go, one line per step, tables, warnings, closing lines.

On a terminal the bars are live and lines are coloured. Anywhere else (a file, a pipe, CI) the same lines come plain.
What models and users wrote is shown as text: markup is not parsed and control characters cannot reach the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console as Screen
from rich.console import RenderableType
from rich.text import Text

from whet.tracking.lines import Field, done_lines, generations, line, step_fields, validation_fields, visible
from whet.tracking.progress import RunProgress
from whet.types import Sample

if TYPE_CHECKING:
    from whet.tracking.bars import Bars

PLAIN_TABLE_WIDTH = 120


class Console:
    """The run's voice. It also writes everything but the bars to `log`, when given."""

    def __init__(
        self,
        quiet: bool | None = None,
        total_steps: int = 0,
        log: Path | None = None,
        stream: TextIO | None = None,
    ) -> None:
        """Be live on a terminal unless `quiet`; `total_steps` may be set later, when it is known."""
        stream = stream or sys.stdout
        self.total_steps = total_steps
        self.live = stream.isatty() and not quiet
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows ? and does not stop the run
        self._screen = Screen(file=stream, highlight=False) if self.live else _plain_screen(stream)
        self._log = log
        self._bars: Bars | None = None
        self._run = RunProgress()

    def log_to(self, path: Path) -> None:
        """Write everything but the bars to this file from now on."""
        self._log = path

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show a bar for the length of the block and yield the function that advances it."""
        if not self.live:
            yield _stand_still
            return
        if self._bars is None:
            from whet.tracking.bars import Bars  # files and pipes have none

            self._bars = Bars(self._screen, self._run)
        with self._bars.stage(name, total, self.total_steps) as advance:
            yield advance

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One line for a training step."""
        self._run.log(step, metrics)
        self._fields(step_fields(step, self.total_steps, metrics, self._run.left(self.total_steps)))

    def validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """One line for a validation."""
        self._fields(validation_fields(step, self.total_steps, metrics))

    def samples_table(self, samples: Sequence[Sample]) -> None:
        """A small table of generations."""
        if samples:
            self._print(lambda width: generations(samples, width or PLAIN_TABLE_WIDTH))

    def note(self, message: str) -> None:
        """Something worth knowing."""
        self._say(Text(visible(message)))

    def notes(self, messages: Iterable[str]) -> None:
        """Print several lines of that kind."""
        for message in messages:
            self.note(message)

    def warn(self, message: str) -> None:
        """Something that may be wrong."""
        self._say(Text.assemble(("warning: ", "bold yellow"), visible(message)))

    def done(
        self,
        step: int,
        folder: Path,
        seconds: float | None,
        before: Mapping[str, float] | None = None,
        after: Mapping[str, float] | None = None,
        resume: str | None = None,
    ) -> None:
        """Closing lines: validation before → after, the run folder, and how to go on.

        `seconds` is None for a run that had finished before, so that nothing was trained.
        """
        for text in done_lines(step, self.total_steps, folder, seconds, before or {}, after or {}, resume):
            self._say(text)

    def _say(self, text: Text) -> None:
        self._print(lambda width: text)

    def _fields(self, fields: list[Field]) -> None:
        self._print(lambda width: line(fields, width))

    def _print(self, render: Callable[[int | None], RenderableType]) -> None:
        """Print on a terminal for its width, elsewhere and in the log in full (width None)."""
        # Soft wrapping leaves long lines to the terminal, so that paths and commands can be copied whole.
        self._screen.print(render(self._screen.width if self.live else None), soft_wrap=True)
        if self._log is None:
            return
        try:
            with self._log.open("a", encoding="utf-8", errors="replace") as file:
                _plain_screen(file).print(render(None), soft_wrap=True)
        except OSError as error:
            self._log = None
            self.warn(f"the log file cannot be written any more: {error}")


def _plain_screen(stream: TextIO) -> Screen:
    # Said outright, because FORCE_COLOR and the like would otherwise colour files and pipes.
    return Screen(
        file=stream, force_terminal=False, color_system=None, no_color=True, highlight=False, width=PLAIN_TABLE_WIDTH
    )


def _stand_still(n: int = 1) -> None:
    """Advance a bar that is not shown."""
