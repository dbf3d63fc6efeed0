"""A run whose worker or engine is gone goes on from its last checkpoint, without a person, as often as it may."""

from __future__ import annotations

import time

from whet.config import Config, with_values
from whet.tracking.console import Console

PAUSE = 2.0  # seconds before a run is opened again: ports and devices of what died get free


def restarted(config: Config, left: int, error: Exception, console: Console) -> Config:
    """Return the config to go on with; raise the error if no restart is `left`.

    The run then continues from the newest checkpoint of its folder, whatever the command said to begin with; without
    one it begins anew.
    """
    if left == 0:
        raise error
    console.warn(f"{str(error).splitlines()[0]}\nThe run goes on from its last checkpoint; restarts left: {left - 1}.")
    time.sleep(PAUSE)
    return (
        config if config.trainer.find_last_checkpoint else with_values(config, {"trainer.find_last_checkpoint": True})
    )
