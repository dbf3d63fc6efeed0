"""What `whet serve` needs of the config, before anything is loaded."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

from whet.config.algorithm import AlgorithmConfig
from whet.config.check import sampling_problems
from whet.config.engines import engine_checks, engines_that
from whet.config.files import check_files, resolve_path
from whet.config.reward import RewardConfig
from whet.config.schema import Config
from whet.errors import UserError


def check_serve(config: Config) -> None:
    """Raise a `UserError` that lists every key that does not go with serving."""
    # Lengths of training say nothing about requests: those are held against the model's own.
    sampled = replace(config, worker=replace(config.worker, rollout=replace(config.worker.rollout, max_model_len=None)))
    problems = [*_problems(config), *sampling_problems(sampled)]
    if problems:
        raise UserError("\n".join(problems))


def check_serve_files(config: Config) -> None:
    """Raise a `UserError` for a model or chat template that is not there; data and rewards of a run are not needed."""
    data = replace(config.data, train_files="", val_files="", format_prompt=None, image_dir=None)
    worker = replace(config.worker, reward=RewardConfig())
    trainer = replace(config.trainer, load_checkpoint_path=None, logger=[])
    check_files(replace(config, data=data, worker=worker, trainer=trainer, algorithm=AlgorithmConfig()))


def check_libraries() -> None:
    """Raise a `UserError` unless what whet[serve] brings is installed."""
    if missing := [name for name in ("pydantic", "starlette", "uvicorn") if find_spec(name) is None]:
        raise UserError(f"whet serve needs {', '.join(missing)}: pip install 'whet[serve]'")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _problems(config: Config) -> Iterator[str]:
    serve, model, rollout = config.serve, config.worker.actor.model, config.worker.rollout
    if model.model_path is None:
        yield "no model is named: whet serve MODEL, where MODEL is a model folder, a checkpoint or a hub id"
    if not is_loopback(serve.host) and not serve.allow_remote:
        yield f"serve.host={serve.host}: other machines could connect; if they should, set serve.allow_remote=true"
    name, can = f"worker.rollout.name={rollout.name}", engine_checks(config).can(config)
    if not can.serves:
        yield f"{name}: whet serve runs {' or '.join(engines_that(config, 'serves'))}"
    if rollout.server_address is not None:
        yield f"worker.rollout.server_address={rollout.server_address}: that server serves already; leave it out"
    if config.trainer.n_gpus_per_node * config.trainer.nnodes > 1 and can.shares_weights:
        yield f"trainer.n_gpus_per_node: whet serve runs {name} on one device; start one server for each"
    if model.lora.rank:
        yield f"worker.actor.model.lora.rank={model.lora.rank}: write a plain model first (whet merge) and serve that"
    for name in serve.allowed_hosts:
        if not name or any(sign in name for sign in "/@ ") or (name.count(":") == 1):
            yield f"serve.allowed_hosts={name}: write a name or an address without scheme and port, or *"
    folder = serve.weights_folder
    if folder is not None and not os.path.isdir(resolve_path(config, folder)):
        yield f"serve.weights_folder={folder}: there is no such folder"
