"""metrics.jsonl and generations.jsonl in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from whet.checkpoint.durable import append_line
from whet.tracking.logger import RunInfo
from whet.tracking.run_folder import answer_text, append_metrics
from whet.types import Sample


class FileLogger:
    """Appends, and only ever appends; files are opened for each line, so nothing is left to flush."""

    def __init__(self, run: RunInfo) -> None:
        self._metrics = run.folder / "metrics.jsonl"
        self._generations = run.folder / "generations.jsonl"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the step's line."""
        append_metrics(self._metrics, step, metrics)

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Append one line per generation."""
        for sample in samples:
            record = {
                "step": step,
                "uid": sample.prompt.uid,
                "prompt": sample.prompt.text,
                "response": sample.text,
                "answer": answer_text(sample.prompt.answer),
                "scores": sample.scores,
            }
            append_line(self._generations, json.dumps(record))

    def close(self) -> None:
        """Every line is on the disk already."""


LOGGER = FileLogger
