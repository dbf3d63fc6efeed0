"""TensorBoard event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.tracking.logger import RunInfo, require
from whet.tracking.run_folder import answer_text
from whet.types import Sample


class TensorboardLogger:
    """Scalars and validation texts under `tensorboard/`; a resumed run continues the same curves."""

    def __init__(self, run: RunInfo) -> None:
        self._package = require("torch.utils.tensorboard", "tensorboard")
        self._folder = run.folder / "tensorboard"
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one scalar per metric."""
        writer = self._open(step)
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Add each generation as a text."""
        writer = self._open(step)
        for number, sample in enumerate(samples):
            score = sample.score("overall")
            text = (
                f"{sample.prompt.text}\n---\n{sample.text}\n---\nanswer {answer_text(sample.prompt.answer)}, {score=}"
            )
            writer.add_text(f"val/generation_{number}", _as_code(text), step)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._writer is not None:
            self._writer.close()

    def _open(self, step: int) -> Any:
        # Opened at the first step because only then is it known where a resumed run starts: TensorBoard hides what
        # a killed run had logged from that step on.
        if self._writer is None:
            self._writer = self._package.SummaryWriter(log_dir=str(self._folder), purge_step=step)
        return self._writer


def _as_code(text: str) -> str:
    """Markdown renders indented lines as they are, whatever the model wrote."""
    return "".join(f"    {line}\n" for line in text.splitlines())


LOGGER = TensorboardLogger
