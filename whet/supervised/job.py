"""`whet sft`: open the rooms, walk the loop, close them whatever happens."""

from __future__ import annotations

from contextlib import ExitStack

from transformers.utils import logging as transformers_logging

from whet.config import Config, summary_lines
from whet.distributed import TorchrunCluster
from whet.distributed.launch import Launch
from whet.supervised.components import open_rooms
from whet.supervised.trainer import SftTrainer
from whet.tracking.console import Console


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
        rooms = open_rooms(config, console, stack, torchrun)
        SftTrainer(rooms).fit()
    return not rooms.interrupt.asked
