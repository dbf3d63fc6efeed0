"""Checks of `whet serve`, before anything is loaded."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from importlib.util import find_spec

from whet.config.checks.engines import engine_checks, engines_that
from whet.config.checks.files import FILE_CHECKS
from whet.config.checks.run import Check, run_checks
from whet.config.checks.sampling import SAMPLING_CHECKS
from whet.config.files import resolve_path
from whet.config.keys import with_values
from whet.config.problems import raise_problems
from whet.config.schema import Config
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.reward import RewardConfig
from whet.errors import UserError


def check_serve(config: Config) -> None:
    """Raise a `UserError` that lists every key that does not go with serving."""
    raise_problems(run_checks(SERVE_CHECKS, config))


def check_libraries() -> None:
    """Raise a `UserError` unless what whet[serve] brings is installed."""
    if missing := [name for name in ("pydantic", "starlette", "uvicorn") if find_spec(name) is None]:
        raise UserError(f"whet serve needs {', '.join(missing)}: pip install 'whet[serve]'")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _model(config: Config) -> Iterator[str]:
    model = config.worker.actor.model
    if model.model_path is None:
        yield "no model is named: whet serve MODEL, where MODEL is a model folder, a checkpoint or a hub id"
    if model.lora.rank:
        yield f"worker.actor.model.lora.rank={model.lora.rank}: write a plain model first (whet merge) and serve that"


def _host(config: Config) -> Iterator[str]:
    serve = config.serve
    if not is_loopback(serve.host) and not serve.allow_remote:
        yield f"serve.host={serve.host}: other machines could connect; if they should, set serve.allow_remote=true"


def _engine(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    name, can = f"worker.rollout.name={rollout.name}", engine_checks(config).can(config)
    if not can.serves:
        yield f"{name}: whet serve runs {' or '.join(engines_that(config, 'serves'))}"
    if rollout.server_address is not None:
        yield f"worker.rollout.server_address={rollout.server_address}: that server serves already; leave it out"
    if config.trainer.n_gpus_per_node * config.trainer.nnodes > 1 and can.shares_weights:
        yield f"trainer.n_gpus_per_node: whet serve runs {name} on one device; start one server for each"


def _access(config: Config) -> Iterator[str]:
    serve = config.serve
    for name in serve.allowed_hosts:
        if not name or any(sign in name for sign in "/@ ") or (name.count(":") == 1):
            yield f"serve.allowed_hosts={name}: write a name or an address without scheme and port, or *"
    folder = serve.weights_folder
    if folder is not None and not os.path.isdir(resolve_path(config, folder)):
        yield f"serve.weights_folder={folder}: there is no such folder"


def _with_own_lengths(config: Config) -> Config:
    """Lengths of training say nothing about requests: those are held against the model's own."""
    return with_values(config, {"worker.rollout.max_model_len": None})


def _without_run(config: Config) -> Config:
    """Files of a run that serving does not read."""
    return with_values(
        config,
        {
            "data.train_files": "",
            "data.val_files": "",
            "data.format_prompt": None,
            "data.image_dir": None,
            "worker.reward": RewardConfig(),
            "trainer.load_checkpoint_path": None,
            "trainer.logger": [],
            "algorithm": AlgorithmConfig(),
        },
    )


SERVE_CHECKS: tuple[Check, ...] = (
    _model,
    _host,
    _engine,
    _access,
    lambda config: run_checks(SAMPLING_CHECKS, _with_own_lengths(config)),
)
SERVE_FILE_CHECKS: tuple[Check, ...] = (lambda config: run_checks(FILE_CHECKS, _without_run(config)),)
