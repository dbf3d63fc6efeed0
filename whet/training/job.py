"""`whet train`: open the rooms, walk the loop, close them whatever happens."""

from __future__ import annotations

from contextlib import ExitStack

from transformers.utils import logging as transformers_logging

from whet.config import Config, summary_lines
from whet.tracking.console import Console
from whet.training.components import open_rooms
from whet.training.trainer import Trainer


def train(config: Config) -> bool:
    """Train as the config says, from the beginning or from where the run stands; False if a signal stopped it."""
    transformers_logging.disable_progress_bar()  # its bars would tear ours
    transformers_logging.set_verbosity_error()
    console = Console(config.trainer.quiet)
    console.notes(summary_lines(config, "train"))
    with ExitStack() as stack:
        rooms = open_rooms(config, console, stack)
        Trainer(rooms).fit()
    return not rooms.interrupt.asked
