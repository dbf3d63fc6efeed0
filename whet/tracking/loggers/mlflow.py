"""MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.tracking.logger import RunInfo, require
from whet.tracking.run_folder import answer_text
from whet.types import Sample


class MlflowLogger:
    """One MLflow run per run folder, on the server that MLFLOW_TRACKING_URI names (MLflow's own default otherwise)."""

    def __init__(self, run: RunInfo) -> None:
        self._mlflow = require("mlflow", "mlflow")
        self._mlflow.set_experiment(run.project)
        identity = run.recall_id("mlflow")
        if identity is None:
            started = self._mlflow.start_run(run_name=run.experiment)
            run.note_id("mlflow", started.info.run_id)
        else:
            self._mlflow.start_run(run_id=identity)
        self._mlflow.log_dict(run.settings, "config.json")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics, not finite ones included; MLflow's names have no @: val/pass@4 is val/pass_at_4 there."""
        sent = {name.replace("@", "_at_"): float(value) for name, value in metrics.items()}
        # In the background: MLflow retries for minutes when its server is away, and the next step must not wait.
        self._mlflow.log_metrics(sent, step=step, synchronous=False)

    def table(self, step: int, samples: Sequence[Sample]) -> None:
        """Store the generations as a JSON artifact."""
        rows = [
            {
                "prompt": sample.prompt.text,
                "response": sample.text,
                "answer": answer_text(sample.prompt.answer),
                "score": sample.score("overall"),
            }
            for sample in samples
        ]
        self._mlflow.log_dict({"step": step, "generations": rows}, f"generations/{step:06d}.json")

    def close(self) -> None:
        """Wait for what is still being sent and end the run."""
        self._mlflow.flush_async_logging()
        self._mlflow.end_run()


LOGGER = MlflowLogger
