"""The model of a config behind its engine, and samples of many prompts from it, each as soon as it is finished."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.checkpoint.judging import verify
from whet.checkpoint.manifest import Checkpoint, UnusableError
from whet.config import Config, resolve_path, with_values
from whet.data.dataset import PromptDataset
from whet.errors import UserError
from whet.model.fused import make_exact
from whet.model.load import count_parameters, end_ids
from whet.model.names import folder_weights
from whet.model.processor import Processor
from whet.rollout.blocking import run_blocking
from whet.rollout.collector import Rollout
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.spec import (
    Opening,
    check_engine_model,
    check_engine_reachable,
    default_slots,
    engine_can,
    open_engine,
)
from whet.tracking.console import Console
from whet.training import parts, policy
from whet.training.device import choose_placement, choose_threads, keep_freed_memory
from whet.training.model_folder import find_model
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.training.episode_source import EpisodeSource

READ_AT_ONCE = 64  # prompts whose images are decoded together

Done = Callable[[Prompt, list[Sample]], None]


@dataclass(slots=True)
class Policy:
    """Everything about a config's model that costs nothing: its weights come last, with the engine."""

    config: Config
    path: str
    tokenizer: PreTrainedTokenizerBase
    model_config: PretrainedConfig
    processor: Processor | None
    checkpoint: Checkpoint | None

    @property
    def name(self) -> str:
        """Name of the weights, for journals and reports."""
        return str(self.checkpoint.path) if self.checkpoint else str(self.config.worker.actor.model.model_path)

    @property
    def weights(self) -> list[list[str | int]]:
        """Name, size and age of the files that hold them, so that new ones under an old name are told apart."""
        folder = self.checkpoint.path if self.checkpoint else Path(self.path)
        if not folder.is_dir():
            return []  # of the hub
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin"))
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]

    def open_engine(self, console: Console, stack: ExitStack, log: Path) -> Engine:
        """Load the weights, and give them to the engine where it has a copy; it is closed with the stack."""
        config, rollout = self.config, self.config.worker.rollout
        ends = end_ids(self.path, self.tokenizer)
        if not engine_can(config).updates:  # it has its weights, and takes no others
            engine = open_engine(Opening(config, None, self.tokenizer, ends, log))
            stack.callback(engine.close)
            return engine
        placement = choose_placement(config)
        keep_freed_memory(placement)
        choose_threads(placement, count_parameters(self.path))
        model = policy.load_policy(config, self.path, self.checkpoint, placement, console.note)
        model.eval()
        if rollout.exact:
            make_exact(model)
        engine = open_engine(Opening(config, model, self.tokenizer, ends, log))
        stack.callback(engine.close)
        engine.load_weights(lambda: folder_weights(model), 0)
        return engine

    def open_environments(self, console: Console, stack: ExitStack) -> EpisodeSource | None:
        """Open the environment or harness that the config names, closed with the stack; None for single turns."""
        if not self.config.worker.rollout.plays_episodes:
            return None
        from whet.training.episode_source import open_source

        ends = end_ids(self.path, self.tokenizer)
        opened = open_source(self.config, self.tokenizer, ends, self.processor, console.warn)
        return stack.enter_context(opened)

    def texts(self, samples: Sequence[Sample]) -> list[str]:
        """Return the samples' texts, as reward functions read them."""
        skip = self.config.worker.reward.skip_special_tokens
        return self.tokenizer.batch_decode([sample.ids for sample in samples], skip_special_tokens=skip)


def open_policy(
    config: Config, console: Console, fit: Callable[[Config, PretrainedConfig], Config] | None = None
) -> Policy:
    """Find the model, its tokenizer and its engine's server, and check that they go with the config.

    `fit` returns the config with lengths by the model's own limits, before they are checked.
    """
    check_engine_reachable(config)
    found = find_model(config, console.note)
    if fit is not None:
        config = fit(config, found.config)
    checkpoint = _checkpoint(config)
    if checkpoint is not None:  # its adapters are those that the config has
        own = checkpoint.meta["config"]["worker"]["actor"]["model"]["lora"]
        config = with_values(config, {f"worker.actor.model.lora.{name}": value for name, value in own.items()})
    check_engine_model(config, found.config)
    policy.adapter_parameters(config, found.config)
    parts.check_lengths(config, found.config, found.tokenizer)
    return Policy(config, found.path, found.tokenizer, found.config, found.processor, checkpoint)


def sample_all(
    config: Config,
    engine: Engine,
    dataset: PromptDataset,
    rows: Sequence[int],
    params: SamplingParams,
    done: Done,
    environments: EpisodeSource | None = None,
) -> None:
    """n samples of each of these rows; `done` hears of a prompt when all of them are there, in any order.

    The samples of row i have the ids that follow from i · n, so they do not depend on which rows are left to do.
    """
    slots = config.worker.rollout.max_num_seqs or default_slots(choose_placement(config).device)
    if environments is not None:
        episodes = environments.episodes(engine, params, config.worker.rollout, lambda samples: None)
        run_blocking(_sample_all(episodes, dataset, rows, params, math.ceil(2 * slots / params.n), done))
        return
    if not engine.capabilities.concurrent:  # it knows batches only
        for batch in _cut(rows, math.ceil(slots / params.n)):
            prompts = dataset.take(batch)
            samples = engine.generate(prompts, params, [row * params.n for row in batch])
            for at, prompt in enumerate(prompts):
                done(prompt, samples[at * params.n : (at + 1) * params.n])
        return
    # Twice what is decoded at a time, so that the engine never waits for the next prompt.
    single: Rollout = lambda prompt, ids: engine.sample(prompt, params, ids.start)  # noqa: E731
    run_blocking(_sample_all(single, dataset, rows, params, math.ceil(2 * slots / params.n), done))


async def _sample_all(
    rollout: Rollout, dataset: PromptDataset, rows: Sequence[int], params: SamplingParams, at_once: int, done: Done
) -> None:
    waiting: set[asyncio.Task[tuple[Prompt, list[Sample]]]] = set()

    async def sample(row: int, prompt: Prompt) -> tuple[Prompt, list[Sample]]:
        return prompt, await rollout(prompt, range(row * params.n, (row + 1) * params.n))

    async def collect(until: int) -> None:
        nonlocal waiting
        while len(waiting) > until:
            finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                done(*task.result())

    try:
        for batch in _cut(rows, min(READ_AT_ONCE, at_once)):
            for row, prompt in zip(batch, dataset.take(batch)):
                await collect(at_once - 1)
                waiting.add(asyncio.create_task(sample(row, prompt)))
        await collect(0)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _cut(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _checkpoint(config: Config) -> Checkpoint | None:
    """Return the checkpoint that `trainer.load_checkpoint_path` names, whole."""
    named = config.trainer.load_checkpoint_path
    if named is None:
        return None
    folder = Path(os.path.abspath(resolve_path(config, named)))
    try:
        return verify(folder)
    except UnusableError as error:
        raise UserError(f"trainer.load_checkpoint_path={named} cannot be used: {error}") from error
