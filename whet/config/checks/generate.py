"""Checks of `whet generate`, before any file is opened or weight is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from whet.config.checks.required import model_set
from whet.config.checks.run import Check, run_checks
from whet.config.checks.sampling import SAMPLING_CHECKS
from whet.config.problems import raise_problems
from whet.config.schema import Config
from whet.config.values import show

OUTPUTS = (".jsonl", ".parquet")


def check_generate(config: Config) -> None:
    """Raise a `UserError` with a sentence for each thing that keeps `whet generate` from sampling."""
    raise_problems(run_checks(GENERATE_CHECKS, config))


def one_device(config: Config) -> Iterator[str]:
    """Yield a sentence if the config asks for several devices."""
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if devices > 1:
        yield (
            f"trainer.n_gpus_per_node x trainer.nnodes = {devices}: this job samples on one device (or on several by "
            "worker.rollout.name=vllm and tensor_parallel_size); set both to 1"
        )


def _files(config: Config) -> Iterator[str]:
    if not config.generate.files:
        yield "generate.files is not set: name a data file, a folder or a hub dataset with prompts"


def _output(config: Config) -> Iterator[str]:
    output = config.generate.output
    if output is not None and PurePath(output).suffix not in OUTPUTS:
        yield f"generate.output={show(output)}: the name must end in {' or '.join(OUTPUTS)}"


def _samples(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    if rollout.n > 1 and rollout.temperature == 0:
        yield f"worker.rollout.temperature=0 makes all {rollout.n} samples of a prompt the same; set n to 1"


GENERATE_CHECKS: tuple[Check, ...] = (_files, _output, _samples, one_device, model_set, *SAMPLING_CHECKS)
