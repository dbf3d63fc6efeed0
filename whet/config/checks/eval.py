"""Checks of `whet eval`, before any file is opened or weight is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from urllib.parse import urlsplit

from whet.config.checks.generate import one_device
from whet.config.checks.required import model_set
from whet.config.checks.reward import REWARD_CHECKS
from whet.config.checks.run import Check, run_checks
from whet.config.checks.sampling import SAMPLING_CHECKS, val_rollout
from whet.config.problems import raise_problems
from whet.config.schema import Config
from whet.config.values import show


def check_eval(config: Config) -> None:
    """Raise a `UserError` with a sentence for each thing that keeps `whet eval` from scoring."""
    raise_problems(run_checks(EVAL_CHECKS, config))


def _datasets(config: Config) -> Iterator[str]:
    job = config.eval
    if job.responses is not None and len(job.datasets) > 1:
        yield f"eval.responses holds the responses of one data set, but eval.datasets={show(job.datasets)} names more"
    if len(set(job.datasets)) < len(job.datasets):
        yield f"eval.datasets={show(job.datasets)}: name each data set once"
    for name, definition in job.definitions.items():
        if not isinstance(definition, dict):
            yield f"eval.definitions.{name}={show(definition)}: expected a mapping such as {{files: my.jsonl}}"
        if PurePath(name).name != name or name.startswith("."):
            yield f"eval.definitions.{name}: the name becomes a folder of the report; write it without slashes"
    if not job.datasets and not config.data.val_files and job.responses is None:
        yield "eval.datasets is not set, nor data.val_files: name data sets, such as eval.datasets=[gsm8k]"


def _samples(config: Config) -> Iterator[str]:
    job, sampling = config.eval, val_rollout(config)
    if (job.n or sampling.n) > 1 and sampling.temperature == 0 and job.responses is None:
        yield "the temperature is 0, so that all samples of a question are the same: set eval.n=1, or sample above 0"


def _api(config: Config) -> Iterator[str]:
    if config.eval.via != "api" or config.eval.responses is not None:
        return
    address = config.eval.api.base_url
    if address is None:
        yield "eval.api.base_url is not set, but eval.via=api: name a server, such as http://127.0.0.1:8000/v1"
        return
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        good = False
    if not good:
        yield f"eval.api.base_url={address}: write it as http://host:port/v1"


def _when_sampling(check: Check) -> Check:
    """Return the check for a config whose own engine answers; a server or a file of responses needs none."""
    return lambda config: check(config) if config.eval.via == "engine" and config.eval.responses is None else ()


EVAL_CHECKS: tuple[Check, ...] = (
    _datasets,
    _samples,
    _api,
    *REWARD_CHECKS,
    *map(_when_sampling, (one_device, model_set, *SAMPLING_CHECKS)),
)
