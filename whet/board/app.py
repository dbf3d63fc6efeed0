"""Routes of the board: the page's files by name, and what it asks for as JSON.

Handlers are plain functions, which Starlette runs in threads, so that a long query does not hold up the others.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whet.board import parameters
from whet.board.access import Access
from whet.board.actions import Actions
from whet.board.jobs import Jobs
from whet.board.overview import Overview
from whet.board.pictures import picture_file
from whet.board.plotly_file import plotly_file
from whet.board.runs import Runs
from whet.board.samples import Samples
from whet.board.settings import compare
from whet.board.timeline import TimelineFiles
from whet.errors import UserError

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MOST_NAMES = 50
_MOST_BYTES = 4_000_000

Handler = Callable[[Request], Any]
Posted = Callable[[Request, Any], Any]


def make_app(
    runs: Runs,
    token: str,
    host: str = "127.0.0.1",
    samples: Samples | None = None,
    read_token: str | None = None,
    control: bool = False,
    jobs: Jobs | None = None,
) -> ASGIApp:
    """Return the board of these runs, behind its tokens; with `control` its owner can ask runs to stop or save."""
    board, actions = _Board(runs, samples or Samples()), Actions(runs, jobs or Jobs(), control)
    answers: dict[str, Handler] = {
        "/api/about": actions.about,
        "/api/jobs/{job}": actions.state,
        "/api/runs": board.runs,
        "/api/runs/{run}/metrics": board.metrics,
        "/api/runs/{run}/findings": board.findings,
        "/api/runs/{run}/steps": board.steps,
        "/api/runs/{run}/samples": board.samples,
        "/api/runs/{run}/groups": board.groups,
        "/api/runs/{run}/sample": board.sample,
        "/api/runs/{run}/config": board.config,
        "/api/runs/{run}/step": board.step,
    }
    posts: dict[str, Posted] = {
        "/api/runs/{run}/resample": actions.resample,
        "/api/runs/{run}/control": actions.control,
        "/api/jobs/{job}/cancel": actions.cancel,
    }
    routes = [Route(path, _as_json(handler), methods=["GET"]) for path, handler in answers.items()]
    routes.append(Route("/api/runs/{run}/pictures/{name}", board.picture, methods=["GET"]))
    routes += [Route(path, _posted(handler), methods=["POST"]) for path, handler in posts.items()]
    files = {file.name: file for file in _PAGE.iterdir() if file.suffix in _TYPES}
    files["plotly.min.js"] = plotly_file()

    def send_file(request: Request) -> Response:
        # By name from those that are there: nothing of a request becomes part of a path.
        file = files.get(request.path_params.get("name") or "index.html")
        if file is None:
            raise HTTPException(404)
        return FileResponse(file, media_type=_TYPES[file.suffix])

    routes += [Route("/", send_file), Route("/{name}", send_file)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found, Exception: _failed})
    return Access(app, token, host, read_token)


class _Board:
    """What the page can ask for."""

    def __init__(self, runs: Runs, samples: Samples) -> None:
        self._runs, self._samples, self._overview = runs, samples, Overview(runs)
        self._timelines = TimelineFiles()

    def _folder(self, request: Request) -> Path:
        return self._runs.folder(request.path_params["run"])

    def runs(self, request: Request) -> Any:
        return self._overview.rows()

    def metrics(self, request: Request) -> Any:
        names = [name for name in request.query_params.getlist("name") if name][:_MOST_NAMES]
        return self._overview.curves(self._folder(request), names)

    def findings(self, request: Request) -> Any:
        return self._overview.findings(self._folder(request))

    def steps(self, request: Request) -> Any:
        return self._samples.steps(self._folder(request), parameters.split(request.query_params))

    def samples(self, request: Request) -> Any:
        query = request.query_params
        filters, page = parameters.filters(query), parameters.page(query)
        return self._samples.query(self._folder(request), parameters.split(query), filters, page)

    def groups(self, request: Request) -> Any:
        query = request.query_params
        page = parameters.page(query, 5)
        step = parameters.needed(query, "step")
        return self._samples.groups(self._folder(request), parameters.split(query), step, page.offset, page.limit)

    def sample(self, request: Request) -> Any:
        query = request.query_params
        step, row = parameters.needed(query, "step"), parameters.needed(query, "row")
        return self._samples.sample(self._folder(request), parameters.split(query), step, row)

    def picture(self, request: Request) -> Response:
        try:
            file, kind = picture_file(self._folder(request), request.path_params["name"])
        except UserError as error:
            return _json({"error": str(error)}, 404)
        return FileResponse(file, media_type=kind)

    def step(self, request: Request) -> Any:
        folder, query = self._folder(request), request.query_params
        split, known = parameters.split(query), self._timelines.steps(folder)
        sampled = self._samples.steps(folder, split)["steps"]
        step = parameters.whole(query, "step")
        if step is None:
            step = max([*known, *sampled], default=0)
        return {
            "step": step,
            "steps": sorted({*known, *sampled}),
            "timeline": self._timelines.read(folder, step),
            "histograms": self._samples.histograms(folder, split, step) if step in sampled else {},
            "metrics": self._overview.at(folder, step),
        }

    def config(self, request: Request) -> Any:
        other = request.query_params.get("other")
        return compare(self._folder(request), self._runs.folder(other) if other else None)


def _as_json(handler: Handler) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        try:
            return _json(handler(request), 200)
        except UserError as error:
            return _json({"error": str(error)}, 400)

    return answer


def _posted(handler: Posted) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            body = await _body(request)
            return _json(await run_in_threadpool(handler, request, body), 200)
        except UserError as error:
            return _json({"error": str(error)}, 400)

    return answer


async def _body(request: Request) -> Any:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise UserError(f"a request has at most {_MOST_BYTES} bytes")
    try:
        return json.loads(b"".join(parts))
    except ValueError:
        raise UserError("a request must be JSON") from None


def _json(content: Any, status: int) -> Response:
    body = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return Response(body, status, media_type="application/json")


def _not_found(request: Request, error: Exception) -> Response:
    return _json({"error": "the board has no such page"}, getattr(error, "status_code", 404))


def _failed(request: Request, error: Exception) -> Response:
    return _json({"error": f"the board failed on this request: {type(error).__name__}: {error}"}, 500)
