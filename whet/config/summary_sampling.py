"""The settings of jobs that only sample, for the lines that are printed before they start."""

from __future__ import annotations

from collections.abc import Callable

from whet.config.checks.sampling import val_rollout
from whet.config.files import run_folder
from whet.config.schema import Config
from whet.config.schema.rollout import RolloutConfig
from whet.config.summary import Rows, count, device_row, model_row, short


def _generate(config: Config) -> Rows:
    output = config.generate.output or str(run_folder(config) / "generations.jsonl")
    return {
        "model": model_row(config),
        "data": config.generate.files,
        "sampling": _sampling(config.worker.rollout, config.worker.rollout.n),
        "device": device_row(config),
        "output": short(output),
    }


def _eval(config: Config) -> Rows:
    job, sampling = config.eval, val_rollout(config)
    rows = {"data": ", ".join(job.datasets) or config.data.val_files or str(job.responses)}
    if job.responses is not None:
        rows |= {"responses": short(job.responses)}
    elif job.via == "api":
        rows |= {"server": str(job.api.base_url), "sampling": _sampling(sampling, job.n)}
    else:
        rows = {
            "model": model_row(config),
            **rows,
            "sampling": _sampling(sampling, job.n),
            "device": device_row(config),
        }
    return rows | {"folder": short(job.output or str(run_folder(config) / "eval"))}


def _serve(config: Config) -> Rows:
    address = f"{config.serve.host}:{config.serve.port or 'a free port'}"
    return {"model": model_row(config), "device": device_row(config), "address": address}


def _chat(config: Config) -> Rows:
    return {"model": model_row(config), "sampling": _sampling(config.worker.rollout, 1), "device": device_row(config)}


def _sampling(rollout: RolloutConfig, n: int | None) -> str:
    return f"{rollout.name}, {count(n or rollout.n, 'sample')} a prompt, temperature {rollout.temperature:g}"


ROWS: dict[str, Callable[[Config], Rows]] = {"generate": _generate, "eval": _eval, "serve": _serve, "chat": _chat}
