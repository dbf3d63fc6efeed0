"""Engines by name: built-in ones (folders of `rollout/engines/`), registered ones, and `path.py:SPEC`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.config.checks.engines import engine_checks
from whet.config.schema import Config
from whet.config.schema.rollout import ENGINES
from whet.errors import UserError
from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from whet.rollout.engine import Engine


def register_engine(name: str, spec: EngineSpec) -> None:
    """Let `worker.rollout.name` name this engine, in this process.

    Ranks of a distributed run are other processes; there `worker.rollout.name` names the file, as in engine.py:SPEC.
    """
    if not isinstance(spec, EngineSpec):
        raise UserError(f"{ENGINES.key}: {name} is registered with an EngineSpec, not with a {type(spec).__name__}")
    ENGINES.register(name, spec)


def engine_spec(config: Config) -> EngineSpec:
    """Return the spec of the engine that the config names."""
    found = engine_checks(config)
    if not isinstance(found, EngineSpec):
        raise UserError(f"{ENGINES.key}={config.worker.rollout.name}: is no EngineSpec but a {type(found).__name__}")
    return found


def engine_can(config: Config) -> Capabilities:
    """Return what the engine that the config names can do."""
    return engine_spec(config).can(config)


def check_engine_reachable(config: Config) -> None:
    """Raise a `UserError` unless the engine's server answers; called before anything is loaded."""
    engine_spec(config).check_reachable(config)


def check_engine_model(config: Config, model: PretrainedConfig) -> None:
    """Raise a `UserError` unless the engine can be started here with this model."""
    engine_spec(config).check_model(config, model)


def open_engine(opening: Opening) -> Engine:
    """Open the engine that the config names."""
    return engine_spec(opening.config).open(opening)
