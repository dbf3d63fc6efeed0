"""Needs of `whet generate`, `whet eval` and `whet chat`, checked before any file is opened or weight is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from urllib.parse import urlsplit

from whet.config.algorithm import AlgorithmConfig
from whet.config.check import sampling_problems, val_rollout
from whet.config.reward import RewardConfig
from whet.config.schema import Config
from whet.config.values import show
from whet.errors import UserError

OUTPUTS = (".jsonl", ".parquet")


def check_generate(config: Config) -> None:
    """UserError with a sentence for each thing that keeps `whet generate` from sampling."""
    _raise([*_generate(config), *_one_device(config), *_model(config), *_sampling(config)])


def check_eval(config: Config) -> None:
    """UserError with a sentence for each thing that keeps `whet eval` from scoring."""
    job = config.eval
    problems = [*_eval(config)]
    if job.via == "api" and job.responses is None:
        problems += _api(config)
    elif job.responses is None:
        problems += [*_one_device(config), *_model(config), *_sampling(config)]
    _raise(problems)


def check_chat(config: Config) -> None:
    """UserError with a sentence for each thing that keeps `whet chat` from sampling."""
    _raise([*_one_device(config), *_model(config), *_sampling(config)])


def without_scoring(config: Config) -> Config:
    """The config without files that only training and scoring read."""
    return replace(
        config,
        data=replace(config.data, train_files="", val_files="", image_dir=None),
        algorithm=AlgorithmConfig(),
        worker=replace(config.worker, reward=RewardConfig()),
        trainer=replace(config.trainer, logger=["console"]),
    )


def _sampling(config: Config) -> list[str]:
    config.trainer.val_only = True  # nothing is trained: keys of training are not looked at
    return sampling_problems(config)


def _generate(config: Config) -> Iterator[str]:
    job, rollout = config.generate, config.worker.rollout
    if not job.files:
        yield "generate.files is not set: name a data file, a folder or a hub dataset with prompts"
    if job.output is not None and PurePath(job.output).suffix not in OUTPUTS:
        yield f"generate.output={show(job.output)}: the name must end in {' or '.join(OUTPUTS)}"
    if rollout.n > 1 and rollout.temperature == 0:
        yield f"worker.rollout.temperature=0 makes all {rollout.n} samples of a prompt the same; set n to 1"


def _eval(config: Config) -> Iterator[str]:
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
    if not job.datasets:
        if not config.data.val_files and job.responses is None:
            yield "eval.datasets is not set, nor data.val_files: name data sets, such as eval.datasets=[gsm8k]"
        if config.worker.reward.reward_function is None:
            yield (
                "eval.datasets is not set, and neither is worker.reward.reward_function, which scores data.val_files: "
                "name data sets, or the function"
            )
    sampling = val_rollout(config)
    if (job.n or sampling.n) > 1 and sampling.temperature == 0 and job.responses is None:
        yield "the temperature is 0, so that all samples of a question are the same: set eval.n=1, or sample above 0"


def _api(config: Config) -> Iterator[str]:
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


def _model(config: Config) -> Iterator[str]:
    if config.worker.actor.model.model_path is None:
        yield "worker.actor.model.model_path is not set: name a model folder or a hub id"


def _one_device(config: Config) -> Iterator[str]:
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if devices > 1:
        yield (
            f"trainer.n_gpus_per_node x trainer.nnodes = {devices}: this job samples on one device (or on several by "
            "worker.rollout.name=vllm and tensor_parallel_size); set both to 1"
        )


def _raise(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))
