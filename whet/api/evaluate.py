"""`whet.evaluate`: scores of a model on data, with intervals, and the report that goes with them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whet.api.names import documented
from whet.api.prepare import Arguments, of_run, prepare, surroundings
from whet.api.run import Run
from whet.api.settings import ConfigLike
from whet.api.table import Table
from whet.config.examples import examples_folder
from whet.errors import UserError
from whet.system.launch import refuse_command


class Evaluation:
    """The result of an evaluation, read from the folder of its report."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        self.about: dict[str, str] = report["about"]
        self._datasets: dict[str, Any] = report["datasets"]

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets; "val" for data that was given."""
        return list(self._datasets)

    @property
    def metrics(self) -> Table:
        """Every number: data set, metric, mean and interval, also by source and category."""
        with (self.folder / "scores.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        numbers = ("questions", "samples", "mean", "low", "high")
        return Table([{k: _number(v) if k in numbers else v for k, v in row.items()} for row in rows])

    @property
    def accuracy(self) -> float:
        """The mean accuracy over data sets."""
        means = [row["mean"] for row in self.metrics if row["metric"].startswith("avg@") and not row["column"]]
        return sum(means) / len(means)

    def samples(self, dataset: str | None = None) -> Table:
        """Return every answer to a data set (the first where none is named) with its scores."""
        name = self.datasets[0] if dataset is None else dataset
        if name not in self.datasets:
            raise UserError(f"samples({name!r}): the data sets are {', '.join(self.datasets)}")
        with (self.folder / name / "samples.jsonl").open(encoding="utf-8") as lines:
            return Table([json.loads(line) for line in lines])

    def __repr__(self) -> str:
        return f"Evaluation({str(self.folder)!r}, {', '.join(self.datasets)}: accuracy {100 * self.accuracy:.1f} %)"

    def _repr_markdown_(self) -> str:
        return (self.folder / "report.md").read_text(encoding="utf-8")


@documented("evaluate")
def evaluate(
    model: str | Path | Run | None = None,
    data: Any = None,
    reward: Callable[..., Any] | str | None = None,
    *,
    config: ConfigLike = None,
    overrides: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Evaluation:
    """Sample answers to questions, score them, and return the numbers with their intervals.

    `data` and `reward` are as in `whet.train`; in their place `datasets=["gsm8k"]` names data sets that come with whet.
    With a `Run` as the model, its best checkpoint answers, and its validation data and reward are used where none are
    given. Without `output` the report goes to a new folder under checkpoints/.
    """
    refuse_command("eval")
    given = Arguments(model, {"data.val_files": data}, reward, config, overrides, keys)
    if isinstance(model, Run):
        given = of_run(given, model, {"eval.output": None})
    elif config is None and overrides is None and not keys and (model is None or data is None or reward is None):
        raise UserError(
            "whet.evaluate needs a model with data and a reward, or data sets by name: "
            'whet.evaluate(model=..., data=..., reward=...) or whet.evaluate(model=..., datasets=["gsm8k"])'
        )
    from whet.config import check_files, with_values
    from whet.config.checks.eval import check_eval
    from whet.config.views import eval_view

    call = prepare("evaluate", given)
    output = call.config.eval.output or str(call.folder)
    settings = eval_view(with_values(call.config, {"eval.output": output}))
    check_eval(settings)
    with call.inputs.written():
        check_files(settings)
        from whet.evals.evaluate import evaluate as run

        with surroundings():
            run(settings, examples_folder())
    return Evaluation(Path(output).expanduser())


def _number(text: str) -> float | None:
    return float(text) if text else None
