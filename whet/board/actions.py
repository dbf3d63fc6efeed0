"""What the board can start: resampling, and requests to runs; only for its owner."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from whet.board.control import control
from whet.board.jobs import Jobs
from whet.board.runs import Runs
from whet.errors import UserError


class Actions:
    """Requests that start something; `Access` has let only the owner's through."""

    def __init__(self, runs: Runs, jobs: Jobs, may_control: bool) -> None:
        self._runs, self._jobs, self._may_control = runs, jobs, may_control

    def about(self, request: Request) -> Any:
        """Return what the page may offer."""
        owner = bool(request.scope.get("owner"))
        return {"resample": owner, "control": owner and self._may_control}

    def resample(self, request: Request, body: Any) -> Any:
        """Put a request to resample into the queue."""
        from whet.resample.request import read_request

        folder = self._runs.folder(request.path_params["run"])
        asked = read_request(body)
        if asked.live and not self._may_control:
            raise UserError("the engine of a run is asked from a board that was started with --control")
        return {"job": self._jobs.add(folder, asked.as_json())}

    def state(self, request: Request) -> Any:
        """Return where a request to resample stands."""
        return self._jobs.state(_number(request))

    def cancel(self, request: Request, body: Any) -> Any:
        """Cancel a request to resample."""
        self._jobs.cancel(_number(request))
        return {}

    def control(self, request: Request, body: Any) -> Any:
        """Ask a run to stop, save or validate after its current step."""
        if not self._may_control:
            raise UserError("runs are controlled from a board that was started with --control")
        action = body.get("action") if isinstance(body, dict) else None
        return control(self._runs.folder(request.path_params["run"]), action)


def _number(request: Request) -> int:
    text = request.path_params["job"]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UserError("a request is named by its number")
    return int(text)
