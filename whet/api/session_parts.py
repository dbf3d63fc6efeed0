"""Parts of a session: those of a training run, without data of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from whet.config import Config, run_folder
from whet.config.schema import all_keys
from whet.config.values import Given, read_value
from whet.errors import UserError
from whet.learn.protocol import Learner
from whet.model.modality import ADAPTER_FOLDER
from whet.rollout.engine import SamplingParams
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.checked import check_run
from whet.training.data import Loaders
from whet.training.interrupt import Interrupt
from whet.training.job import open_environments
from whet.training.model_folder import ModelFolder
from whet.training.models import open_models, prepare_device
from whet.training.parts import open_scorer
from whet.training.rollouts import sampling_params
from whet.training.store import open_store
from whet.training.trainer import Trainer
from whet.types import Sample


def open_session(config: Config, stack: ExitStack) -> Trainer:
    """Build everything from a checked config; what must be closed afterwards goes onto the stack."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console = Console(config.trainer.quiet)
    run = check_run(config, console)
    steps = config.trainer.max_steps or 1
    folder = stack.enter_context(RunFolder(run_folder(config)))
    scorer = None
    if config.worker.reward.is_named:
        scorer = stack.enter_context(open_scorer(config, run.model.tokenizer, console, folder.path))
        scorer.check([])
    environments = open_environments(run, console, stack)
    store = open_store(run, folder, None, 1, console, stack, prints=False)  # the caller's loop prints its own lines
    prepare_device(run, console)
    models = open_models(
        run.plan(store.checkpoint, steps, folder.path), run.placement, run.model.tokenizer, console, stack
    )
    if scorer is not None:
        scorer.ready()
    interrupt = Interrupt(console.note)  # not entered: the caller's Ctrl-C is the caller's
    return Trainer(run, Loaders(None, None), store, models, scorer, interrupt, console, steps, environments)


def sampling(config: Config, n: Any, temperature: Any) -> SamplingParams:
    """Return how a call samples: as the config says, but for what is given."""
    given = {"n": n, "temperature": temperature}
    changes = {
        name: read_value(all_keys()[f"worker.rollout.{name}"], Given(name, value))
        for name, value in given.items()
        if value is not None
    }
    return sampling_params(replace(config.worker.rollout, **changes), config.data.max_response_length)


def check_samples(samples: Sequence[Sample], config: Config) -> None:
    """Raise a `UserError` for samples that cannot be trained on."""
    for number, sample in enumerate(samples, start=1):
        score = sample.scores.get("overall") if isinstance(sample.scores, dict) else None
        if (
            isinstance(score, bool)
            or not isinstance(score, int | float)
            or score != score
            or abs(score) == float("inf")
        ):
            raise UserError(
                f"sample {number} has no finite score ({score!r}): call score, "
                'or set sample.scores = {"overall": 1.0}'
            )
        if not sample.ids:
            raise UserError(f"sample {number} has no tokens, so there is nothing to learn from it")
    estimator = config.algorithm.adv_estimator
    if config.algorithm.compares_groups and len({id(sample.prompt) for sample in samples}) == len(samples):
        raise UserError(
            f"advantage={estimator} compares the samples of a prompt with each other, and no two of these have the "
            "same prompt: sample several, as in sample(prompts, n=8)"
        )


def for_update(config: Config, count: int, mini_batch: int | None) -> Config:
    """Return the config of one update: its batch is `count` samples, in mini-batches of so many or all at once."""
    size = count if mini_batch is None else mini_batch
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or count % size:
        raise UserError(f"update(mini_batch={mini_batch!r}): give a number that divides the {count} samples")
    worker = replace(
        config.worker,
        rollout=replace(config.worker.rollout, n=1),
        actor=replace(config.worker.actor, global_batch_size=size),
        critic=replace(config.worker.critic, global_batch_size=size),
    )
    trainer = replace(config.trainer, rejection_sample_multiplier=1)
    return replace(config, worker=worker, trainer=trainer, data=replace(config.data, rollout_batch_size=count))


def export(learner: Learner, model: ModelFolder, path: Path) -> Path:
    """Write the policy alone to a folder that is not there yet, or empty."""
    target = path.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"save: {target} exists already; name a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".whet-save-", dir=target.parent) as side:
            learner.save(Path(side), model.tokenizer, model_only=True)
            adapters = Path(side) / ADAPTER_FOLDER
            written = adapters if adapters.is_dir() else Path(side) / "huggingface"
            if model.processor is not None:
                model.processor.save_pretrained(written)
            if target.exists():
                target.rmdir()
            os.rename(written, target)
    except OSError as error:
        raise UserError(f"save: cannot write to {target}: {error.strerror or error}") from error
    return target
