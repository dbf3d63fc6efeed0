"""Weights & Biases."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from whet.tracking.logger import RunInfo, require
from whet.tracking.run_folder import answer_text
from whet.types import Sample


class WandbLogger:
    """One W&B run per run folder: its id is noted there, so a resumed run goes on in the same one."""

    def __init__(self, run: RunInfo) -> None:
        self._wandb = require("wandb", "wandb")
        identity = run.recall_id("wandb") or uuid.uuid4().hex[:12]
        self._run = self._wandb.init(
            project=run.project,
            name=run.experiment,
            id=identity,
            resume="allow",
            dir=str(run.folder),
            config=run.settings,
        )
        run.note_id("wandb", identity)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics; W&B drops steps that it has already, which a redone step is."""
        self._run.log(dict(metrics), step=step)

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Send the generations as a table."""
        table = self._wandb.Table(columns=["prompt", "response", "answer", "score"])
        for sample in samples:
            answer = answer_text(sample.prompt.answer)
            table.add_data(sample.prompt.text, sample.text, answer, sample.score("overall"))
        self._run.log({"val/generations": table}, step=step)

    def close(self) -> None:
        """Wait for the upload and end the run."""
        self._run.finish()


LOGGER = WandbLogger
