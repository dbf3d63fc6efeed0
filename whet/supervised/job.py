"""`whet sft`: check the config, open data, store and model, train, and close everything whatever happens."""

from __future__ import annotations

from contextlib import ExitStack

from transformers.utils import logging as transformers_logging

from whet.config import Config, run_folder, summary_lines
from whet.distributed import TorchrunCluster
from whet.learn.protocol import Learner
from whet.supervised.data import count_steps, open_data
from whet.supervised.ranks import learner_on_ranks
from whet.supervised.trainer import JOB, SftTrainer
from whet.system.launch import Launch
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training import parts, policy
from whet.training.checked import CheckedModel, check_model
from whet.training.device import is_distributed
from whet.training.interrupt import Interrupt
from whet.training.models import RankPlan, prepare_device
from whet.training.store import RunStore, open_store


def sft(config: Config, launch: Launch | None = None) -> bool:
    """Learn from demonstrations as the config says, from the beginning or from where the run stands.

    Return False if a signal stopped it.

    `launch` is torchrun's, for the first of its processes; the others run `serve_first`.
    """
    transformers_logging.disable_progress_bar()  # its bars would tear ours
    transformers_logging.set_verbosity_error()
    console = Console(config.trainer.quiet)
    console.notes(summary_lines(config, "sft"))
    with ExitStack() as stack:
        torchrun = None
        if launch is not None and launch.world > 1:  # first, so that the others hear whatever goes wrong
            torchrun = stack.enter_context(TorchrunCluster(launch, config.trainer.device))
        trainer = open_trainer(config, console, stack, torchrun)
        trainer.fit()
    return not trainer.interrupt.asked


def open_trainer(
    config: Config, console: Console, stack: ExitStack, torchrun: TorchrunCluster | None = None
) -> SftTrainer:
    """Build everything that a run needs; weights come last. What must be closed afterwards goes onto the stack."""
    # 1. check
    run = check_model(config, console)
    # 2. data
    data = open_data(config, run.model, console)
    steps = console.total_steps = count_steps(config, data.train)
    # 3. store
    folder = stack.enter_context(RunFolder(run_folder(config)))
    store = open_store(run, folder, data.train, steps, console, stack, JOB)
    # 4. model
    prepare_device(run, console)
    learner = _open_learner(run, store, steps, console, stack, torchrun)
    interrupt = stack.enter_context(Interrupt(console.note))
    return SftTrainer(run, data, store, learner, interrupt, console, steps)


def _open_learner(
    run: CheckedModel,
    store: RunStore,
    total_steps: int,
    console: Console,
    stack: ExitStack,
    torchrun: TorchrunCluster | None,
) -> Learner:
    """Load the model: on the ranks of several devices, or on the one that this process has."""
    config, model, folder = run.config, run.model, store.folder.path
    if is_distributed(config):
        plan = RankPlan(
            config=config,
            path=model.path,
            tokenizer_path=model.tokenizer_path,
            ends=model.ends,
            checkpoint=store.checkpoint,
            total_steps=total_steps,
            uses_reference=False,
            critic_path=None,
            folder=folder,
            samples=False,
        )
        return learner_on_ranks(plan, torchrun, folder / "ranks", console.note, stack)
    weights = policy.load_policy(config, model.path, store.checkpoint, run.placement, console.note)
    return parts.open_learner(config, weights, total_steps)
