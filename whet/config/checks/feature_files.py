"""Checks of paths that only some runs name: images, extensions, loggers, environments, tools, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from whet.config.checks.missing import missing
from whet.config.checks.run import Check
from whet.config.files import PICKLE, resolve_path
from whet.config.schema import Config
from whet.config.values import show

FOREIGN_SHARDS = "model_world_size_*_rank_*.pt"  # of FSDP, as the other systems write them
# Arguments of the tokenizer's method, and variables that whet or the tokenizer set.
_TAKEN = frozenset(
    [
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    ]
)


def _image_dir(config: Config) -> Iterator[str]:
    folder = config.data.image_dir
    if folder is not None and not os.path.isdir(resolve_path(config, folder)):
        yield missing(config, "data.image_dir", folder, "folder")


def _template_args(config: Config) -> Iterator[str]:
    for name in config.data.chat_template_args:
        if name in _TAKEN or not name.isidentifier():
            yield (
                f"data.chat_template_args.{name}: whet gives the template its {name}; name variables of the template "
                "itself, such as enable_thinking"
                if name in _TAKEN
                else f"data.chat_template_args: {show(name)} is no name of a variable"
            )


def _extensions(config: Config) -> Iterator[str]:
    for file in config.algorithm.extensions:
        if not file.endswith((".py", PICKLE)):
            yield f"algorithm.extensions={show(file)}: expected a Python file, such as mine.py"
        elif not os.path.isfile(resolve_path(config, file)):
            yield missing(config, "algorithm.extensions", file, "file")


def _loggers(config: Config) -> Iterator[str]:
    for name in config.trainer.logger:
        path = name.rpartition(":")[0]
        if path and not os.path.isfile(resolve_path(config, path)):
            yield missing(config, "trainer.logger", path, "file")


def _environment(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    for key, spec in (("env", rollout.env), ("agent", rollout.agent)):
        path = (spec or "").rpartition(":")[0]
        if path.endswith((".py", PICKLE)) and not os.path.isfile(resolve_path(config, path)):
            yield missing(config, f"worker.rollout.{key}", path, "file")
    given: dict[str, Any] = {"agent": rollout.agent, "agent_command": rollout.agent_command, "env": rollout.env}
    given |= {"tools": rollout.tools or None, "interaction": rollout.interaction}
    named = [f"worker.rollout.{key}" for key, value in given.items() if value is not None]
    if rollout.has_harness and len(named) > 1:
        yield f"{' and '.join(named[:2])} are both set, and exclude each other: drop one"


def _tools(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    if rollout.env is not None and (rollout.tools or rollout.interaction):
        key = "tools" if rollout.tools else "interaction"
        yield f"worker.rollout.{key} and worker.rollout.env are both set, and exclude each other: drop one"
    if rollout.multi_turn and not rollout.plays_episodes:
        yield "worker.rollout.multi_turn=true: set worker.rollout.tools, interaction or env, which make the turns"
    for spec in rollout.tools:
        path = spec if spec.endswith((".yaml", ".yml", ".json")) else spec.rpartition(":")[0]
        if path.endswith((".py", ".yaml", ".yml", ".json")) and not os.path.isfile(resolve_path(config, path)):
            yield missing(config, "worker.rollout.tools", path, "file")
    if rollout.interaction is not None and not os.path.isfile(resolve_path(config, rollout.interaction)):
        yield missing(config, "worker.rollout.interaction", rollout.interaction, "file")


def _checkpoint(config: Config) -> Iterator[str]:
    folder = config.trainer.load_checkpoint_path
    if folder is None:
        return
    path = resolve_path(config, folder)
    if not os.path.isdir(path):
        yield missing(config, "trainer.load_checkpoint_path", folder, "folder")
    elif shards := next((each for each in (path / "actor", path) if any(each.glob(FOREIGN_SHARDS))), None):
        yield (
            f"trainer.load_checkpoint_path={show(folder)}: is a checkpoint of verl, EasyR1 or Skywork-OR1; write the "
            f"model with whet merge --local_dir {shards} --target_dir FOLDER, and name FOLDER as the model"
        )


FEATURE_FILE_CHECKS: tuple[Check, ...] = (
    _image_dir,
    _template_args,
    _extensions,
    _loggers,
    _environment,
    _tools,
    _checkpoint,
)
