"""Paths in a config: resolve them, and make them independent of the working directory and of the config file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.config.keys import get
from whet.config.schema import Config
from whet.config.schema.rollout import ENVS

PICKLE = ".pickle"  # functions that the Python API has written into a run folder
# Keys that hold a path, or a path with a name behind a colon; any value that is none here stays as it is.
_PATHS = (
    "data.image_dir",
    "data.format_prompt",
    "data.override_chat_template",
    "sft.format_response",
    "algorithm.extensions",
    "algorithm.distill.model_path",
    "algorithm.distill.model_paths",
    "algorithm.distill.format_prompt",
    "algorithm.prime.model_path",
    "worker.reward.reward_function",
    "worker.reward.model.path",
    "worker.reward.model.tokenizer_path",
    "worker.reward.model.template",
    "worker.reward.judge.model_path",
    "worker.reward.judge.rubric",
    "worker.rollout.name",
    "worker.rollout.env",
    "worker.rollout.agent",
    "worker.rollout.tools",
    "worker.rollout.interaction",
    "worker.actor.model.model_path",
    "worker.actor.model.tokenizer_path",
    "worker.critic.model.model_path",
    "trainer.logger",
    "trainer.load_checkpoint_path",
)
_DATA = ("data.train_files", "data.val_files")


def resolve_path(config: Config, value: str) -> Path:
    """The path as given if it exists, else relative to the folder of the config file or of one that it extends."""
    path = Path(os.path.expanduser(value))
    if path.is_absolute() or os.path.exists(path) or not config.folders:
        return path
    beside = [folder / path for folder in config.folders]
    return next((each for each in beside if os.path.exists(each)), beside[0])


def local_name(config: Config, name: str) -> str:
    """A folder's path where one stands, a hub id or built-in name unchanged."""
    path = resolve_path(config, name)
    return str(path) if path.exists() else name


def run_folder(config: Config) -> Path:
    """Return the run folder: `trainer.save_checkpoint_path`, or checkpoints/project_name/experiment_name."""
    trainer = config.trainer
    if trainer.save_checkpoint_path is not None:
        return Path(os.path.expanduser(trainer.save_checkpoint_path))
    return Path("checkpoints") / trainer.project_name / trainer.experiment_name


def is_template_text(value: str) -> bool:
    """Return True if a template is given as its text rather than as a file."""
    return "{{" in value or "{%" in value


def anchored(config: Config) -> Config:
    """Return a copy in which every path that exists is absolute, as the config.yaml of a run folder holds it."""
    whole: Any = config
    for name in (*_PATHS, *_DATA):
        if name == "worker.rollout.env" and str(get(config, name)).partition(":")[0] in ENVS.names:
            continue  # a folder of that name is not meant
        if name not in config.written:  # what comes from the environment is stored as it was written
            whole = _with(whole, name.split("."), _anchored(config, get(config, name), name in _DATA))
    combined = {_anchored(config, spec, False): weight for spec, weight in config.worker.reward.parts.items()}
    return _with(whole, ("worker", "reward", "combine"), combined) if combined else whole


def _with(section: Any, names: Sequence[str], value: Any) -> Any:
    """Return a copy of a section with another value for one key below it."""
    head, *below = names
    return replace(section, **{head: _with(getattr(section, head), below, value) if below else value})


def _anchored(config: Config, value: Any, data: bool) -> Any:
    if isinstance(value, list):
        return [_anchored(config, each, data) for each in value]
    if isinstance(value, dict):
        return {name: _anchored(config, each, data) for name, each in value.items()}
    if not isinstance(value, str) or not value or is_template_text(value):
        return value
    found = _existing(config, value)
    if found is not None:
        return found
    if data and "," in value:
        return ",".join(_anchored(config, each.strip(), data) for each in value.split(","))
    path, mark, behind = value.rpartition("@" if data else ":")  # a split of the data, or a name in the file
    found = _existing(config, path) if path else None
    return value if found is None else f"{found}{mark}{behind}"


def _existing(config: Config, value: str) -> str | None:
    path = resolve_path(config, value)
    return os.path.abspath(path) if os.path.exists(path) else None
