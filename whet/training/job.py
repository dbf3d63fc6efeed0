"""`whet train`: check the config, open data, store and models, train, and close everything whatever happens."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from transformers.utils import logging as transformers_logging

from whet.config import Config, run_folder, summary_lines
from whet.doctor.doctor import Doctor
from whet.errors import WorkerLostError
from whet.rollout.engine import EngineGoneError
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.answer_check import check_answers
from whet.training.checked import CheckedRun, check_run
from whet.training.data import count_steps, open_data
from whet.training.interrupt import Interrupt
from whet.training.models import open_models, prepare_device
from whet.training.parts import open_scorer
from whet.training.store import open_store
from whet.training.trainer import Trainer

if TYPE_CHECKING:
    from whet.training.episode_source import EpisodeSource

DRY_RUN_ROWS = 2


def train(config: Config) -> bool:
    """Train as the config says, from the beginning or from where the run stands; False if a signal stopped it."""
    transformers_logging.disable_progress_bar()  # its bars would tear ours
    transformers_logging.set_verbosity_error()
    console = Console(config.trainer.quiet)
    console.notes(summary_lines(config, "train"))
    for left in count(config.trainer.max_restarts, -1):
        try:
            with ExitStack() as stack:
                trainer = open_trainer(config, console, stack)
                trainer.fit()
            return not trainer.interrupt.asked
        except (WorkerLostError, EngineGoneError) as error:
            from whet.training.restart import restarted

            config = restarted(config, left, error, console)
    raise AssertionError("the last restart returns or raises")


def open_trainer(config: Config, console: Console, stack: ExitStack) -> Trainer:
    """Build everything that a run needs, in the order that finds mistakes before work starts; weights come last.

    What must be closed afterwards goes onto the stack.
    """
    # 1. check
    run = check_run(config, console)
    # 2. data
    data, rows = open_data(config, run.model, console)
    if config.algorithm.distill.format_prompt is not None and data.train is not None:
        from whet.training.teachers import check_prompts

        check_prompts(config, run.model, run.teachers, data.train)
    steps = console.total_steps = count_steps(config, data.train, run.stages)
    if config.trainer.replay is not None:
        from whet.training.schedule import check_replay

        check_replay(config, steps)
    # 3. store, and the reward workers, whose prints it holds
    folder = stack.enter_context(RunFolder(run_folder(config)))
    environments = open_environments(run, console, stack)
    if environments is not None:
        environments.check(rows)
    scorer = None
    if environments is None or config.worker.reward.is_named:
        scorer = stack.enter_context(open_scorer(config, run.model.tokenizer, console, folder.path))
        scorer.check(rows[:DRY_RUN_ROWS])
    store = open_store(run, folder, data.train, steps, console, stack)
    if scorer is not None and environments is None and (finding := check_answers(scorer, rows)):
        Doctor(folder.path, console.warn).report(finding)
    # 4. models
    prepare_device(run, console)
    plan = run.plan(store.checkpoint, steps, folder.path)
    models = open_models(plan, run.placement, run.model.tokenizer, console, stack)
    if scorer is not None:
        scorer.ready()
    interrupt = stack.enter_context(Interrupt(console.note))
    trainer = Trainer(run, data, store, models, scorer, interrupt, console, steps, environments)
    stack.callback(trainer.batches.close)
    return trainer


def open_environments(run: CheckedRun, console: Console, stack: ExitStack) -> EpisodeSource | None:
    """Open the environment or harness that the config names; None for single turns."""
    if not run.config.worker.rollout.plays_episodes:
        return None
    from whet.training.episode_source import open_source

    model = run.model
    return stack.enter_context(open_source(run.config, model.tokenizer, model.ends, model.processor, console.warn))
