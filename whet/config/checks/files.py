"""Checks of paths in the config: something must be there before any weight is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from whet.config.checks.run import Check, known_values, run_checks, where_set
from whet.config.files import PICKLE, is_template_text, resolve_path
from whet.config.problems import raise_problems
from whet.config.schema import Config
from whet.config.schema.data import ROWS
from whet.config.values import show

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".pkl", ".pickle", ".txt", ".gz", ".zst")


def check_files(config: Config) -> None:
    """Raise a `UserError` that lists every path in the config with nothing there."""
    raise_problems(run_checks(FILE_CHECKS, config))


def _missing(config: Config, key: str, value: str, what: str, advice: str = "") -> str:
    from whet.config.checks.missing import missing  # not needed where every file exists

    return missing(config, key, value, what, advice)


def _data_files(config: Config) -> Iterator[str]:
    for name, value in known_values(config.data, ("train_files", "val_files")):
        if value.startswith("[") and value.endswith("]"):
            yield f"data.{name}={show(value)}: write several files with commas between, without brackets"
            continue
        specs = [value] if os.path.exists(resolve_path(config, value)) else value.split(",")
        for spec in (spec.strip() for spec in specs if spec.strip()):
            path = spec.rpartition("@")[0] or spec
            is_here = any(os.path.exists(resolve_path(config, each)) for each in (spec, path))
            is_hub = not path.endswith(DATA_SUFFIXES) and _is_hub_id(config, path.partition(":")[0])
            is_generated = ":" in spec and spec.partition(":")[0] in ROWS.names
            if not is_here and not is_hub and not is_generated:
                advice = "download it and name the file" if "://" in path else "a hub dataset is named org/name"
                yield _missing(config, f"data.{name}", path, "data file or folder", advice)


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
                yield (
                    f"{key}={value}: the folder has no config.json, so it is not a Hugging Face model folder"
                    f"{_other_folder(path)}"
                )
        elif os.path.isfile(path):
            yield f"{key}={show(value)}: is a file; name the model's folder, which has a config.json"
        elif not _is_hub_id(config, value):
            yield _missing(config, key, value, "model folder", "a hub model is named org/name")


def _other_folder(path: Path) -> str:
    """What a folder without config.json is, where its files tell."""
    if (path / "adapter_config.json").is_file():
        return "; it holds adapters: merge them with their model first (whet merge)"
    if any(path.glob("global_step_*")):
        return "; it is a run: name a checkpoint's folder in it, global_step_N/actor/huggingface"
    return "; GGUF files cannot be trained: name the folder they were made from" if any(path.glob("*.gguf")) else ""


def _is_builtin(value: str) -> bool:
    return value.startswith("whet/") and value.count("/") == 1


def _is_hub_id(config: Config, value: str) -> bool:
    """Return True if a value may be a name on a hub; a name in a folder that exists here is a path."""
    if _is_builtin(value):
        return True
    return HUB_ID.fullmatch(value) is not None and not resolve_path(config, value).parent.is_dir()


FILE_CHECKS: tuple[Check, ...] = (
    _data_files,
    _templates,
    _reward,
    _models,
    where_set(
        "feature_files.FEATURE_FILE_CHECKS",
        *("data.image_dir", "data.chat_template_args", "algorithm.extensions"),
        *("trainer.logger", "trainer.load_checkpoint_path"),
        *(f"worker.rollout.{name}" for name in ("env", "agent", "agent_command", "tools", "interaction", "multi_turn")),
    ),
)
