"""A run whose worker or engine is gone goes on from its last checkpoint, without a person, as often as it may."""

from __future__ import annotations

import time

from whet.config import Config, with_values
from whet.tracking.console import Console

PAUSE = 2.0  # seconds before a run is opened again: ports and devices of what died get free


def restarted(config: Config, error: Exception, console: Console) -> Config:
    """Return the config to go on with, which allows one restart less; raise the error if it allowed none.

    The run then continues from the newest checkpoint of its folder, whatever the command said to begin with; without
    one it begins anew.
    """
    left = config.trainer.max_restarts
    if left == 0:
        raise error
    console.warn(f"{str(error).splitlines()[0]} The run goes on from its last checkpoint ({left - 1} restarts left).")
    time.sleep(PAUSE)
    return with_values(config, {"trainer.max_restarts": left - 1, "trainer.find_last_checkpoint": True})
