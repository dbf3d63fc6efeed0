"""SwanLab."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from whet.tracking.logger import RunInfo, require
from whet.tracking.run_folder import answer_text
from whet.types import Sample


class SwanlabLogger:
    """One SwanLab run per run folder. The mode (cloud, local, disabled) is read by SwanLab from SWANLAB_MODE."""

    def __init__(self, run: RunInfo) -> None:
        self._swanlab = require("swanlab", "swanlab")
        identity = run.recall_id("swanlab") or uuid.uuid4().hex[:21]  # the length that SwanLab asks for
        self._swanlab.init(
            project=run.project,
            experiment_name=run.experiment,
            id=identity,
            resume="allow",
            logdir=str(run.folder / "swanlab"),
            config=run.settings,
        )
        run.note_id("swanlab", identity)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics."""
        self._swanlab.log(dict(metrics), step=step)

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Send each generation as a text."""
        texts = [
            self._swanlab.Text(
                f"{sample.prompt.text}\n---\n{sample.text}\n---\nanswer {answer_text(sample.prompt.answer)}",
                caption=f"score {sample.scores.get('overall')}",
            )
            for sample in samples
        ]
        self._swanlab.log({"val/generations": texts}, step=step)

    def close(self) -> None:
        """Wait for the upload and end the run."""
        self._swanlab.finish()


LOGGER = SwanlabLogger
