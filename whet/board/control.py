"""Control of a run that is going on: requests are files in its folder, which the trainer reads between two steps."""

from __future__ import annotations

from pathlib import Path

from whet.errors import UserError
from whet.tracking.requests import ACTIONS, ask
from whet.tracking.status import read_status


def control(folder: Path, action: object) -> dict[str, str]:
    """Ask a run to do something after its current step."""
    if not isinstance(action, str) or action not in ACTIONS:
        raise UserError(f"action must be one of {', '.join(ACTIONS)}")
    if read_status(folder) != "running":
        raise UserError("this run is not going on, so that nobody would read the request")
    try:
        ask(folder, action)
    except OSError as error:
        raise UserError(f"{folder}: the request cannot be written: {error.strerror or error}") from error
    return {"asked": action}
