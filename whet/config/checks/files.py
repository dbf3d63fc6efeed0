"""Checks of paths in the config: something must be there before any weight is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.config.checks.run import Check, known_values, run_checks
from whet.config.files import PICKLE, is_template_text, resolve_path
from whet.config.problems import did_you_mean, nearest, raise_problems
from whet.config.schema import Config
from whet.config.schema.data import ROWS
from whet.config.values import show

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
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
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".pkl", ".pickle", ".txt", ".gz", ".zst")


def check_files(config: Config) -> None:
    """Raise a `UserError` that lists every path in the config with nothing there."""
    raise_problems(run_checks(FILE_CHECKS, config))


def _data_files(config: Config) -> Iterator[str]:
    for name, value in known_values(config.data, ("train_files", "val_files")):
        specs = [value] if os.path.exists(resolve_path(config, value)) else value.split(",")
        for spec in (spec.strip() for spec in specs if spec.strip()):
            path = spec.rpartition("@")[0] or spec
            is_here = any(os.path.exists(resolve_path(config, each)) for each in (spec, path))
            is_hub = not path.endswith(DATA_SUFFIXES) and _is_hub_id(config, path.partition(":")[0])
            is_generated = ":" in spec and spec.partition(":")[0] in ROWS.names
            if not is_here and not is_hub and not is_generated:
                yield _missing(config, f"data.{name}", path, "data file or folder", "a hub dataset is named org/name")


def _image_dir(config: Config) -> Iterator[str]:
    folder = config.data.image_dir
    if folder is not None and not os.path.isdir(resolve_path(config, folder)):
        yield _missing(config, "data.image_dir", folder, "folder")


def _templates(config: Config) -> Iterator[str]:
    chat = config.data.override_chat_template
    files = {
        "data.format_prompt": config.data.format_prompt,
        "sft.format_response": config.sft.format_response,
        "algorithm.distill.format_prompt": config.algorithm.distill.format_prompt,
    }
    for key, file in files.items():
        if file is not None and is_template_text(file):
            yield f"{key} holds a template's text; write it to a file and name the file"
        elif file is not None and not os.path.isfile(resolve_path(config, file)):
            yield _missing(config, key, file, "file")
    if chat is not None and not is_template_text(chat) and not os.path.isfile(resolve_path(config, chat)):
        yield _missing(config, "data.override_chat_template", chat, "file")


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
            yield _missing(config, "algorithm.extensions", file, "file")


def _loggers(config: Config) -> Iterator[str]:
    for name in config.trainer.logger:
        path = name.rpartition(":")[0]
        if path and not os.path.isfile(resolve_path(config, path)):
            yield _missing(config, "trainer.logger", path, "file")


def _reward(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    named = [("worker.reward.reward_function", reward.reward_function)] if reward.reward_function else []
    for key, spec in [*named, *(("worker.reward.combine", str(spec)) for spec in reward.parts)]:
        if spec.isidentifier():  # the name of a scorer, which the reward workers look up, or model or judge
            continue
        path, colon, function = spec.rpartition(":")
        path, function = (path, function) if colon else (spec, "main")
        if not path.endswith((".py", PICKLE)) or not function.isidentifier():
            yield f"{key}={spec}: expected path.py:function, such as reward.py:compute_score"
        elif not os.path.isfile(resolve_path(config, path)):
            yield _missing(config, key, path, "file")


def _environment(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    for key, spec in (("env", rollout.env), ("agent", rollout.agent)):
        path = (spec or "").rpartition(":")[0]
        if path.endswith((".py", PICKLE)) and not os.path.isfile(resolve_path(config, path)):
            yield _missing(config, f"worker.rollout.{key}", path, "file")
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
            yield _missing(config, "worker.rollout.tools", path, "file")
    if rollout.interaction is not None and not os.path.isfile(resolve_path(config, rollout.interaction)):
        yield _missing(config, "worker.rollout.interaction", rollout.interaction, "file")


def _models(config: Config) -> Iterator[str]:
    model, reward = config.worker.actor.model, config.worker.reward
    named = {
        "worker.actor.model.model_path": model.model_path,
        "worker.actor.model.tokenizer_path": model.tokenizer_path,
        "worker.reward.model.path": reward.model.path,
        "worker.reward.model.tokenizer_path": reward.model.tokenizer_path,
        "worker.reward.judge.model_path": reward.judge.model_path,
        "algorithm.distill.model_path": config.algorithm.distill.model_path,
    }
    for source, path in config.algorithm.distill.model_paths.items():
        named[f"algorithm.distill.model_paths.{source}"] = path if isinstance(path, str) else None
    for key, value in named.items():
        if value is None:
            continue
        path = resolve_path(config, value)
        if os.path.isdir(path) and not _is_builtin(value):
            if not key.endswith("tokenizer_path") and not (path / "config.json").is_file():
                yield f"{key}={value}: the folder has no config.json, so it is not a Hugging Face model folder"
        elif not _is_hub_id(config, value):
            yield _missing(config, key, value, "model folder", "a hub model is named org/name")


def _checkpoint(config: Config) -> Iterator[str]:
    folder = config.trainer.load_checkpoint_path
    if folder is None:
        return
    path = resolve_path(config, folder)
    if not os.path.isdir(path):
        yield _missing(config, "trainer.load_checkpoint_path", folder, "folder")
    elif shards := next((each for each in (path / "actor", path) if any(each.glob(FOREIGN_SHARDS))), None):
        yield (
            f"trainer.load_checkpoint_path={show(folder)}: is a checkpoint of verl, EasyR1 or Skywork-OR1; write the "
            f"model with whet merge --local_dir {shards} --target_dir FOLDER, and name FOLDER as the model"
        )


def _is_builtin(value: str) -> bool:
    return value.startswith("whet/") and value.count("/") == 1


def _is_hub_id(config: Config, value: str) -> bool:
    """Return True if a value may be a name on a hub; a name in a folder that exists here is a path."""
    if _is_builtin(value):
        return True
    return HUB_ID.fullmatch(value) is not None and not resolve_path(config, value).parent.is_dir()


def _missing(config: Config, key: str, value: str, what: str, advice: str = "") -> str:
    looked = (
        f" (nor in {config.source.parent})" if config.source and not os.path.isabs(os.path.expanduser(value)) else ""
    )
    sibling = _nearest_sibling(config, value)
    end = did_you_mean(sibling) if sibling or not advice else f"; {advice}"
    return f"{key}={show(value)}: there is no such {what}{looked}{end}"


def _nearest_sibling(config: Config, value: str) -> str | None:
    """A path that exists and differs only a little from the missing one, in the first name that is missing."""
    for path in (Path(os.path.expanduser(value)), resolve_path(config, value)):
        missing = next((part for part in (path, *path.parents) if os.path.isdir(part.parent)), path)
        names = sorted(os.listdir(missing.parent)) if os.path.isdir(missing.parent) else []
        found = nearest(missing.name, names)
        if found is not None:
            whole = missing.parent / found / path.relative_to(missing)
            return str(whole if os.path.exists(whole) else missing.parent / found)
    return None


FILE_CHECKS: tuple[Check, ...] = (
    _data_files,
    _image_dir,
    _templates,
    _template_args,
    _extensions,
    _loggers,
    _reward,
    _environment,
    _tools,
    _models,
    _checkpoint,
)
