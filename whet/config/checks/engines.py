"""Engines as the config knows them: their names, what they can do, and which keys go with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from whet.config.checks.run import known_values
from whet.config.files import resolve_path
from whet.config.keys import keys_of
from whet.config.schema import Config
from whet.config.schema.rollout import ENGINE_KEYS, ENGINES, RolloutConfig
from whet.config.values import show
from whet.errors import UserError


@runtime_checkable
class EngineChecks(Protocol):
    """Part of an `EngineSpec` that config checks use (see `whet/rollout/spec.py`)."""

    @property
    def keys(self) -> frozenset[str]:
        """Those of `ENGINE_KEYS` that the engine follows."""
        ...

    def can(self, config: Config) -> Any:
        """Return its `Capabilities` under a config."""
        ...

    def problems(self, config: Config) -> Iterable[str]:
        """Yield a sentence for each key that the engine misses or cannot follow."""
        ...


def engine_checks(config: Config) -> EngineChecks:
    """Return the spec of the engine that `worker.rollout.name` names."""
    name = config.worker.rollout.name
    path = name.rpartition(":")[0]
    found = ENGINES.find(name, resolve_path(config, path) if path else None)
    if not isinstance(found, EngineChecks):
        raise UserError(f"{ENGINES.key}={name}: is of type {type(found).__name__}; it must be an EngineSpec")
    return found


def engines_that(config: Config, ability: str) -> list[str]:
    """Return the names of all engines with a capability, for messages."""
    return [name for name in ENGINES.names if getattr(ENGINES.find(name).can(config), ability)]


def engine_problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each key that does not go with the chosen engine."""
    rollout = config.worker.rollout
    name = f"{ENGINES.key}={rollout.name}"
    spec = engine_checks(config)
    for key, value in known_values(rollout, ENGINE_KEYS):
        if key not in spec.keys and value != keys_of(RolloutConfig)[key].default:
            takers = [each for each in ENGINES.names if key in ENGINES.find(each).keys]
            yield (
                f"worker.rollout.{key}={show(value)} is for {' or '.join(takers)}, but {name}; "
                f"leave it out, or set {ENGINES.key} to {' or '.join(takers)}"
            )
    if rollout.server_address is not None and not is_address(rollout.server_address):
        yield f"worker.rollout.server_address={rollout.server_address}: write it as http://host:port"
    if not spec.can(config).updates and not config.trainer.val_only:
        others = ", ".join(engines_that(config, "updates"))
        yield (
            f"{name}: it keeps the weights that it was started with, so training would sample a policy that is not the "
            f"learner's; train with {others}, or set trainer.val_only=true"
        )
    if ENGINES.is_registered(rollout.name) and config.trainer.n_gpus_per_node * config.trainer.nnodes > 1:
        yield f"{name}: is registered in this process, but ranks are others; name its file, as in engine.py:SPEC"
    yield from spec.problems(config)


def is_address(address: str) -> bool:
    """True if an address is one of a web server."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
