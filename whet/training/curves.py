"""curves.svg of a run folder: the charts of `whet plot`, drawn again at every validation."""

from __future__ import annotations

import time
from collections.abc import Callable

from whet.checkpoint.durable import write_text
from whet.tracking.run_folder import RunFolder

_QUICK = 0.5  # seconds; a picture that takes longer is drawn at most so often that it costs 2% of the run
_SHARE = 0.02


class Curves:
    """The picture of a run's metrics. What goes wrong with it is reported once and never stops the run."""

    def __init__(self, folder: RunFolder, name: str, warn: Callable[[str], None]) -> None:
        """`name` is the run's, as the legend shows it."""
        self._folder, self._name, self._warn = folder, name, warn
        self._drawn = self._reported = False
        self._ended, self._seconds = time.perf_counter(), 0.0  # of the latest drawing

    def logged(self, validated: bool) -> None:
        """Take note of a step that was logged, and draw if it was validated."""
        self._drawn = False
        since = time.perf_counter() - self._ended
        if validated and (self._seconds < _QUICK or self._seconds < _SHARE * since):
            self.draw()

    def draw(self) -> None:
        """Write the picture, unless it shows the latest step already; readers see the old one or the new one."""
        if self._drawn or not self._folder.metrics.exists():
            return
        self._drawn, begin = True, time.perf_counter()
        try:
            write_text(self._folder.curves, self._svg())
        except Exception as error:
            if not self._reported:
                self._reported = True
                self._warn(f"{self._folder.curves.name} could not be drawn, training goes on without it: {error}")
        self._ended = time.perf_counter()
        self._seconds = self._ended - begin

    def _svg(self) -> str:
        from whet.plots.chart import lay_out
        from whet.plots.curves import Arm, RunData, panels
        from whet.plots.picture import to_svg
        from whet.tracking.run_folder import read_metrics

        # The config in the folder is not read: of its keys a single run's picture shows the name alone.
        settings = {"trainer.experiment_name": self._name}
        run = RunData(self._folder.path, read_metrics(self._folder.metrics), settings)
        return to_svg(lay_out(panels([Arm(run.name, [run])])))
