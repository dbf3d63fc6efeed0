"""Look at what of a training run needs neither weights nor a GPU: engine, model, data, environment, reward, disk.

Each part is tried on its own, so that one that fails does not hide the others; nothing is written to the run folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from whet.config import Config, run_folder
from whet.config.texts import size_text
from whet.errors import UserError
from whet.rollout.spec import check_engine_model, check_engine_reachable
from whet.tracking.console import Console
from whet.training import parts, policy
from whet.training.data import open_data, scored_by_environment
from whet.training.job import DRY_RUN_ROWS
from whet.training.model_folder import ModelFolder, find_model
from whet.types import Prompt

_COPIES = 4  # a checkpoint has the weights, and the optimizer two moments and what rounding lost, at most in fp32
_WEIGHTS = ("*.safetensors", "*.bin")


def preflight(config: Config, console: Console, samples: bool = True) -> Iterator[str]:
    """Yield a sentence for each thing that would keep a run from starting; what is in order goes to the console.

    `samples` says that the job samples and scores, as training does and supervised training does not.
    """
    found: list[str] = []

    def tried(what: Callable[[], object]) -> object:
        try:
            return what()
        except UserError as error:
            found.append(str(error))
            return None

    if samples:
        tried(lambda: check_engine_reachable(config))
    model = tried(lambda: _model(config, console, samples))
    if isinstance(model, ModelFolder):
        rows = tried(lambda: _data(config, model, console, samples))
        if samples and isinstance(rows, list):
            if config.worker.rollout.plays_episodes:
                tried(lambda: _episodes(config, model, rows, console))
            if not scored_by_environment(config):
                tried(lambda: _reward(config, model, rows, console))
        tried(lambda: _disk(config, model, console))
    yield from found


def _model(config: Config, console: Console, samples: bool) -> ModelFolder:
    model = find_model(config, console.note)
    policy.check_model(config, model.config)
    parts.check_lengths(config, model.config, model.tokenizer)
    if samples:
        check_engine_model(config, model.config)
    console.note(f"model: {model.path}, {model.config.model_type}, {len(model.tokenizer)} tokens")
    return model


def _data(config: Config, model: ModelFolder, console: Console, samples: bool) -> list[Prompt]:
    if samples:
        return open_data(config, model, console)[1]
    return []


def _episodes(config: Config, model: ModelFolder, rows: list[Prompt], console: Console) -> None:
    """Open the environment, the tools or the harness, as a run does before its first step."""
    from whet.training.episode_source import open_source

    with open_source(config, model.tokenizer, model.ends, model.processor, console.warn) as source:
        source.check(rows)
    rollout = config.worker.rollout
    named = (rollout.env, rollout.agent, rollout.agent_command, *rollout.tools, rollout.interaction)
    console.note(f"episodes: {', '.join(filter(None, named))}")


def _reward(config: Config, model: ModelFolder, rows: list[Prompt], console: Console) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        parts.open_scorer(config, model.tokenizer, console, Path(folder)) as scorer,
    ):
        scorer.check(rows[:DRY_RUN_ROWS])
    console.note(f"reward: tried on {len(rows[:DRY_RUN_ROWS])} rows")


def _disk(config: Config, model: ModelFolder, console: Console) -> None:
    """Raise a `UserError` if the disk of the run folder has no room for one checkpoint."""
    folder = run_folder(config)
    place = next((each for each in (folder, *folder.absolute().parents) if each.is_dir()), Path("."))
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"the run folder {folder} cannot be made: {place} cannot be written to")
    weights = sum(file.stat().st_size for kind in _WEIGHTS for file in Path(model.path).glob(kind))
    free, needed = shutil.disk_usage(place).free, _COPIES * weights
    console.note(f"disk: {size_text(free)} free in {place}; a checkpoint has at most {size_text(needed)}")
    if free < needed:
        raise UserError(f"{place} has {size_text(free)} free, and a checkpoint may take {size_text(needed)}")
