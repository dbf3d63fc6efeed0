"""A run as an object: its metrics, samples, plots and checkpoints, read from the run folder at every access."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.api.table import Table
from whet.config import Config, load_config
from whet.errors import UserError
from whet.plots.chart import lay_out
from whet.plots.curves import PANELS, panels
from whet.plots.picture import Plot
from whet.plots.runs import as_arms, read_run

if TYPE_CHECKING:
    from whet.api.board import Board
    from whet.api.evaluate import Evaluation
    from whet.checkpoint.manifest import Checkpoint

_FIRST = tuple(name for _, trained, validated in PANELS for name in (validated, trained) if name)
_SAMPLES = re.compile(r"(train|val)_(\d+)\.parquet")


class Run:
    """A run of `whet.train` or `whet.sft`, finished, stopped or still going on."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(os.path.expanduser(folder)).absolute()

    def __repr__(self) -> str:
        last = self._last()
        state = f"checkpoint of step {last.step}" if last else "no checkpoint yet"
        return f"Run({str(self.folder)!r}, {state})"

    @property
    def config(self) -> Config:
        """The config that the run was last started with."""
        return load_config([f"config={self.folder / 'config.yaml'}"])

    @property
    def metrics(self) -> Table:
        """The metrics of every step: a row for each, with `step` and a column for each metric."""
        from whet.tracking.run_folder import read_metrics

        file = self.folder / "metrics.jsonl"
        return Table(read_metrics(file) if file.exists() else [], ("step", *_FIRST))

    def samples(self, step: int | None = None, split: str = "train") -> Table:
        """Return every sample of a step (the last one where none is named), with its prompt, response and scores.

        `split` is "train", or "val" for those of a validation.
        """
        import pyarrow.parquet as pq

        if split not in ("train", "val"):
            raise UserError(f'samples(split={split!r}): samples are of "train" or "val"')
        if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
            raise UserError(f"samples(step={step!r}): a step is a number, such as samples(10)")
        files = self._sample_files(split)
        if not files:
            raise UserError(f"{self.folder}/samples holds no {split} samples (trainer.log_samples, or no step yet)")
        chosen = max(files) if step is None else step
        if chosen not in files:
            steps = ", ".join(map(str, sorted(files)[-10:]))
            raise UserError(f"{self.folder} has no {split} samples of step {step}; there are steps {steps}")
        return Table(pq.read_table(files[chosen]).to_pylist())

    def plot(self, *metrics: str) -> Plot:
        """Return line charts of metrics over steps; without names, those that say most about a run."""
        for name in metrics:
            if not isinstance(name, str):
                raise UserError(f'plot({name!r}): metrics are named by texts, as in plot("val/accuracy")')
        return Plot(lay_out(panels(as_arms([read_run(self.folder)]), metrics)))

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints that stand, in the order of their steps."""
        from whet.checkpoint.store import read_checkpoints

        found = read_checkpoints(self.folder)
        return [each.path for each in sorted(found, key=lambda each: each.step)]

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint written last; None before the first."""
        last = self._last()
        return last.path if last else None

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint with the best validation; the last one where none was validated, None before the first."""
        from whet.checkpoint.choosing import choose

        choice = choose(self.folder)
        return choice.checkpoint.path if choice else None

    @property
    def model(self) -> Path:
        """The Hugging Face folder of the best checkpoint, for whet, transformers or a server."""
        checkpoint = self.best_checkpoint
        if checkpoint is None:
            raise UserError(f"{self.folder} has no checkpoint yet, so there is no trained model")
        folder = checkpoint / "actor" / "huggingface"
        if not folder.is_dir():
            raise UserError(
                f"{checkpoint} holds adapters only; write a whole model first: whet merge {checkpoint} FOLDER "
                "(generate and evaluate of a run need none)"
            )
        return folder

    def generate(self, prompts: Any, **keys: Any) -> Table:
        """Sample from the best checkpoint under the run's own templates and lengths; keywords as of `whet.generate`."""
        from whet.api.generate import generate

        return generate(self, prompts, **keys)

    def evaluate(self, data: Any = None, reward: Any = None, **keys: Any) -> Evaluation:
        """Score the best checkpoint, on the run's validation data by its reward where nothing else is given."""
        from whet.api.evaluate import evaluate

        return evaluate(self, data, reward, **keys)

    def resample(self, step: int, row: int, **keys: Any) -> dict[str, Any]:
        """Draw a sample again with its own random numbers, or branch it at a token.

        `row` is the sample's row in `samples(step)`. Without further keywords the answer says whether every token came
        out equal; `at`, `token`, `text`, `temperature`, `prompt` or `n` branch it, `top` lists the likeliest tokens at
        each place, `split` and `checkpoint` are as of `whet resample`.
        """
        from whet.resample.job import resample
        from whet.resample.request import read_request

        branches = any(keys.get(name) is not None for name in ("at", "token", "text", "temperature", "prompt", "n"))
        kind = "tokens" if "top" in keys else "branch" if branches else "again"
        return resample(self.folder, read_request({"kind": kind, "step": step, "row": row, **keys}))

    def board(self, port: int = 0) -> Board:
        """Show the run in `whet board`, in a process of its own; a notebook shows the link.

        Close it with `close()`, or use it in a with statement; it ends with this process.
        """
        from whet.api.board import Board

        return Board([self.folder], port)

    def _last(self) -> Checkpoint | None:
        from whet.checkpoint.store import read_checkpoints

        found = read_checkpoints(self.folder)
        return found[0] if found else None

    def _sample_files(self, split: str) -> Mapping[int, Path]:
        folder = self.folder / "samples"
        matches = (
            [(_SAMPLES.fullmatch(path.name), path) for path in folder.glob("*.parquet")] if folder.is_dir() else []
        )
        return {int(match[2]): path for match, path in matches if match and match[1] == split}


def load(folder: str | Path | Run) -> Run:
    """Open the run in a folder, whether it is finished, stopped or still going on."""
    if isinstance(folder, Run):
        return folder
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"load: expected the folder of a run, got {type(folder).__name__}")
    if "\0" in str(folder):
        raise UserError("load: a path cannot contain a null character")
    run = Run(Path(folder))
    if not run.folder.is_dir():
        raise UserError(f"load: there is no folder {run.folder}")
    if not (run.folder / "config.yaml").is_file():
        inside = run.folder.parent if (run.folder.parent / "config.yaml").is_file() else None
        hint = f"; did you mean {inside}?" if inside else ""
        raise UserError(f"load: {run.folder} holds no run (it has no config.yaml){hint}")
    return run
