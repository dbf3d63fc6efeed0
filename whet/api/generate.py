"""`whet.generate`: samples of prompts, as a table."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.api.data import prompts_file
from whet.api.names import documented
from whet.api.prepare import Arguments, of_run, prepare, require, surroundings
from whet.api.run import Run
from whet.api.settings import ConfigLike
from whet.api.table import Table
from whet.system.launch import refuse_command


@documented("generate")
def generate(
    model: str | Path | Run | None = None,
    prompts: Any = None,
    *,
    config: ConfigLike = None,
    overrides: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Table:
    """Sample responses to prompts and return them as a table with a row for each sample.

    `prompts` is a text, a list of texts, or data as in `whet.train` (no answer column is needed). With a `Run` as the
    model, its best checkpoint samples under the templates and lengths of the run. Rows have the columns of their
    prompt, and `response`, `finish`, `index` and `response_length`. `output` names a file to keep them in, .jsonl or
    .parquet.
    """
    refuse_command("generate")
    require("generate", config, model=model, prompts=prompts)
    given = Arguments(model, None, None, config, overrides, keys)
    if isinstance(model, Run):
        given = of_run(given, model, {"worker.rollout.n": 1, "generate.output": None})
    from whet.config import check_files, with_values
    from whet.config.checks.generate import check_generate
    from whet.config.views import generate_view

    with tempfile.TemporaryDirectory(prefix="whet-generate-") as folder:
        call = prepare("generate", given, Path(folder))
        values: dict[str, str] = {}
        if prompts is not None:
            values["generate.files"] = prompts_file(prompts, call.config.data.prompt_key, call.inputs)
        if call.config.generate.output is None:
            values["generate.output"] = str(Path(folder) / "samples.jsonl")
        settings = generate_view(with_values(call.config, values))
        check_generate(settings)
        with call.inputs.written():
            check_files(settings)
            from whet.evals.generate import generate as run

            with surroundings():
                run(settings)
        return _read(Path(settings.generate.output or "").expanduser())


def _read(file: Path) -> Table:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return Table(pq.read_table(file).to_pylist())
    with file.open(encoding="utf-8") as lines:
        return Table([json.loads(line) for line in lines])
