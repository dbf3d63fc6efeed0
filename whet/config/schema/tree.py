"""The config tree: `data`, `algorithm`, `worker`, `trainer`, and a section for each job besides training.

The names and meanings are EasyR1's; what is ours besides is marked by nothing but its help. Plain dataclasses all the
way down: `config.worker.actor.optim.lr` is a float.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from whet.config.keys import Key, key, keys_of, presets_of, section, sections_of
from whet.config.schema.actor import ActorConfig, CriticConfig, RefConfig
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.data import DataConfig
from whet.config.schema.jobs import EvalConfig, GenerateConfig, ServeConfig, SftConfig
from whet.config.schema.model import ModelConfig
from whet.config.schema.reward import RewardConfig
from whet.config.schema.rollout import RolloutConfig
from whet.config.schema.sandbox import SandboxConfig
from whet.config.schema.trainer import TrainerConfig
from whet.config.secrets import LEFT_OUT, masked


@dataclass(frozen=True)
class WorkerConfig:
    """The parts that do the work of a step."""

    hybrid_engine: bool = key(True, "actor and rollout share their devices; false wants trainer.placement")
    actor: ActorConfig = field(default_factory=ActorConfig, metadata=section("the policy that is trained"))
    critic: CriticConfig = field(default_factory=CriticConfig, metadata=section("the value model of PPO"))
    ref: RefConfig = field(default_factory=RefConfig, metadata=section("the frozen model that KL is measured against"))
    reward: RewardConfig = field(default_factory=RewardConfig, metadata=section("the function that scores samples"))
    rollout: RolloutConfig = field(default_factory=RolloutConfig, metadata=section("the engine that samples responses"))

    @property
    def critic_model(self) -> ModelConfig:
        """`critic.model`; without a path of its own it is the actor's model, opened as the actor's is."""
        own, actor = self.critic.model, self.actor.model
        if own.model_path is not None:
            return own
        return replace(
            own,
            model_path=actor.model_path,
            trust_remote_code=own.trust_remote_code or actor.trust_remote_code,
            override_config=actor.override_config | own.override_config,
        )


@dataclass(frozen=True)
class Config:
    """Everything a run can be told."""

    data: DataConfig = field(default_factory=DataConfig, metadata=section("which prompts, and in what batches"))
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig, metadata=section("advantage and KL"))
    worker: WorkerConfig = field(default_factory=WorkerConfig, metadata=section("the parts that do the work of a step"))
    trainer: TrainerConfig = field(
        default_factory=TrainerConfig, metadata=section("how long, what to log, when to validate and save")
    )
    sft: SftConfig = field(default_factory=SftConfig, metadata=section("whet sft: what it learns from in a row"))
    generate: GenerateConfig = field(
        default_factory=GenerateConfig, metadata=section("whet generate: samples to a file")
    )
    eval: EvalConfig = field(
        default_factory=EvalConfig, metadata=section("whet eval: scores on data sets, and a report")
    )
    serve: ServeConfig = field(
        default_factory=ServeConfig, metadata=section("whet serve: its address, its token and its limits")
    )
    sandbox: SandboxConfig = field(default_factory=SandboxConfig, metadata=section("programs that the model wrote"))
    source: Path | None = field(default=None, compare=False)  # the file it was read from
    # Folders of that file and of those it extends: relative paths may start there.
    folders: tuple[Path, ...] = field(default=(), compare=False)
    origin: str = field(default="defaults", compare=False)  # what it started from, in words
    written: dict[str, Any] = field(default_factory=dict, compare=False)  # keys whose text comes from the environment

    @property
    def keeps_history(self) -> bool:
        """True if a step depends on pass rates, baselines or groups of earlier steps."""
        algorithm = self.algorithm
        has_baselines = algorithm.adv_estimator in ("spo", "rae")
        return self.data.curriculum.active or algorithm.replay_buffer.size > 0 or has_baselines

    def stored(self) -> dict[str, Any]:
        """The tree as files and loggers may hold it: text from the environment as it was written, secrets left out."""
        tree = self.to_dict()
        for name, raw in self.written.items():
            *above, leaf = name.split(".")
            branch = tree
            for part in above:
                branch = branch[part]
            branch[leaf] = raw
        return masked(tree, mark=LEFT_OUT)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain dictionaries, lists and scalars."""
        tree = asdict(self)
        for name in ("source", "folders", "origin", "written"):
            del tree[name]
        return _without_tuples(tree)

    def to_yaml(self) -> str:
        """A complete config file that `load_config` reads back to an equal config, given the same environment.

        Secrets are left out of it (config/secrets.py).
        """
        tree = escaped(self.stored(), self.written)
        return yaml.dump(tree, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)


def all_keys() -> dict[str, Key]:
    """Every key by its dotted name, in the order of the reference."""
    return keys_of(Config)


def all_sections() -> dict[str, str]:
    """Every section by its dotted name, with its line of help."""
    return sections_of(Config)


def all_presets() -> dict[str, Mapping[str, dict[str, Any]]]:
    """Every section that has presets, with them."""
    return presets_of(Config)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Write what `OmegaConf.to_yaml` writes, in a fifth of its time: every run begins with it."""

    def text(self, value: str) -> yaml.ScalarNode:
        """Quote what would be read back as a number (also 1e-3) or as true or false (also y)."""
        return self.represent_scalar("tag:yaml.org,2002:str", value, style="'" if _NO_TEXT.fullmatch(value) else None)


_NO_TEXT = re.compile(
    r"(?i)\s*[-+]?((\d[\d_]*\.?|\.\d)[\d_]*(e[-+]?[\d_]+)?|inf|infinity|nan)\s*|y|yes|n|no|true|false|on|off"
)
_Dumper.add_representer(str, _Dumper.text)


def _without_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_tuples(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tuples(item) for item in value]
    return str(value) if isinstance(value, str) else value  # not a kind of text of our own, which YAML does not know


def escaped(value: Any, written: Mapping[str, Any] | None = None, above: str = "") -> Any:
    """The value with every `${` but those of `written` keys so that OmegaConf does not read it as an interpolation."""
    if isinstance(value, dict):
        names = {name: f"{above}{name}" for name in value}
        return {
            name: item if names[name] in (written or {}) else escaped(item, written, f"{names[name]}.")
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [escaped(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", value)
    return value
