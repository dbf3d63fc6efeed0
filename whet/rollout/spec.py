"""`EngineSpec`: everything about an engine that is known before it is opened, and engines by name.

A spec is read while the config is checked, so a module that defines one imports neither torch nor its engine: `open`
and the checks import what they need when they are called. A name is a folder of `rollout/engines/`, a registered one,
or `path.py:SPEC`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.config.checks.engines import engine_checks
from whet.config.schema import Config
from whet.config.schema.rollout import ENGINES
from whet.errors import UserError

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from whet.rollout.engine import Engine


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of an engine. Callers decide by these, never by an engine's name or class."""

    shares_weights: bool = False  # reads the learner's parameters where they are; else it is sent a copy
    updates: bool = True  # takes new weights; else it samples with those it was started with
    updates_in_flight: bool = False  # samples that are being written go on with new weights; else they end first
    exact_log_probs: bool = False  # log-probs are the learner's own numbers, up to rounding
    concurrent: bool = True  # calls of `sample` are decoded together; else one after the other
    streams: bool = False  # `stream` yields tokens as they are written; else whole samples
    images: bool = False  # takes prompts with images
    prefix_reuse: bool = False  # continues a kept sample without computing its prefix again
    partial: bool = False  # `abort` gives back what was written; else the tokens of the turn are lost
    external: bool = False  # a server that somebody else started: one for all ranks
    serves: bool = False  # can answer the requests of `whet serve`
    pushes: bool = False  # is a `native.inbox.Inbox`: tells readers what their requests have grown by


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that an engine is opened with."""

    config: Config
    model: PreTrainedModel | None  # None only for engines without `updates`
    tokenizer: PreTrainedTokenizerBase
    ends: frozenset[int]  # token ids that end a response
    log: Path | None = None  # file for the output of processes that the engine starts
    device: torch.device | None = None  # where to sample; None is the model's device
    moving: bool = False  # parameters have other addresses in every rollout, so that no captured graph may hold them

    @property
    def policy(self) -> PreTrainedModel:
        """The model, for engines that cannot do without it."""
        assert self.model is not None, "only engines that take no weights are opened without a model"
        return self.model

    @property
    def slots(self) -> int:
        """Samples decoded at once: `worker.rollout.max_num_seqs`, or the device's default."""
        return self.config.worker.rollout.max_num_seqs or default_slots(self.device or self.policy.device)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence, prompt and response."""
        config = self.config
        return config.worker.rollout.max_model_len or config.data.max_prompt_length + config.data.max_response_length


def default_slots(device: torch.device) -> int:
    """Return how many samples are decoded at once where `worker.rollout.max_num_seqs` does not say."""
    return 512 if device.type == "cuda" else 64


def _no_problems(config: Config) -> Iterable[str]:
    return ()


def _any_model(config: Config, model: PretrainedConfig) -> None:
    return None


def _nothing_to_reach(config: Config) -> None:
    return None


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Specification of an engine: opener, capabilities, config checks.

    `capabilities` may depend on the config, as those of vLLM do on where it runs.
    """

    open: Callable[[Opening], Engine]
    capabilities: Capabilities | Callable[[Config], Capabilities]
    keys: frozenset[str] = frozenset()  # those of `whet.config.schema.rollout.ENGINE_KEYS` that it follows
    problems: Callable[[Config], Iterable[str]] = _no_problems  # a sentence for each key that it cannot follow
    check_reachable: Callable[[Config], None] = _nothing_to_reach  # UserError where its server or program is missing
    check_model: Callable[[Config, PretrainedConfig], None] = _any_model  # UserError for a model that it cannot run

    def can(self, config: Config) -> Capabilities:
        """Return what the engine can do under a config."""
        return self.capabilities if isinstance(self.capabilities, Capabilities) else self.capabilities(config)


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
