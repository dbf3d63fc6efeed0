"""`whet.sft`: supervised fine-tuning from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.api.names import documented
from whet.api.prepare import Arguments, prepare, require, surroundings
from whet.api.run import Run
from whet.api.settings import ConfigLike
from whet.errors import UserError
from whet.system.launch import launched


@documented("sft")
def sft(
    model: str | Path | Run | None = None,
    data: Any = None,
    *,
    val_data: Any = None,
    config: ConfigLike = None,
    overrides: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Run:
    """Fine-tune a model on demonstrations and return the run.

    Rows of `data` have a chat in the column `messages`, or a `prompt` and a `response`. Everything else is as in
    `whet.train`.
    """
    if launched() is not None:
        raise UserError("whet.sft runs in one process; under torchrun use its command: torchrun ... -m whet sft ...")
    require("sft", config, model=model, data=data)
    given = {"data.train_files": data, "data.val_files": val_data}
    call = prepare("sft", Arguments(model, given, None, config, overrides, keys))
    from whet.config import check_files
    from whet.config.checks.sft import check_sft
    from whet.config.views import sft_view

    settings = sft_view(call.config)
    check_sft(settings)
    with call.inputs.written():
        check_files(settings)
        from whet.supervised.job import sft as run

        with surroundings():
            finished = run(settings)
    if not finished:
        raise KeyboardInterrupt(f"the step is saved; whet.sft(..., output={str(call.folder)!r}) resumes from it")
    return Run(call.folder)
