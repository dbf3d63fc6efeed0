"""Sandbox Fusion's `POST /run_code` for programs that whet's own sandbox confines.

The fields of requests and answers are Sandbox Fusion's. Unlike its server, this one needs a token, gives programs no
environment, network or files of the host, and refuses paths that leave a program's directory; `fetch_files` is not
supported.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whet.errors import UserError
from whet.sandbox.limits import Limits, Result
from whet.sandbox.pool import Sandbox
from whet.serving.access import Access
from whet.serving.errors import ApiError, come_back
from whet.serving.guard import ClientGoneError, read_body
from whet.serving.hosts import Hosts
from whet.serving.metrics import Metrics

MOST_BODY = 16 << 20  # bytes
_BODY_SECONDS = 30.0
_QUEUE = 16  # requests for each worker that may wait
_LIMITED = ("timeout",)  # statuses that Sandbox Fusion calls TimeLimitExceeded


class BadFieldError(Exception):
    """A field of a request that cannot be used."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.detail = [{"loc": ["body", field], "msg": message, "type": "value_error"}]


class Fusion:
    """The service: a pool, its largest limits, and how much may wait."""

    def __init__(self, sandbox: Sandbox, most: Limits) -> None:
        self._sandbox, self._most = sandbox, most
        self._threads = ThreadPoolExecutor(sandbox.workers)
        self._busy = 0

    async def run_code(self, request: Request) -> Response:
        """Run one program."""
        if self._busy >= self._sandbox.workers * (1 + _QUEUE):
            raise come_back(429, "too many programs are waiting", "busy", 1)
        self._busy += 1
        try:
            headers = dict(request.scope["headers"])
            body = await read_body(request.receive, headers, MOST_BODY, _BODY_SECONDS)
            order = self.read(body)
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, lambda: self._sandbox.run(**order))
        except ClientGoneError:
            raise ApiError(400, "the client left") from None
        except BadFieldError as error:
            return JSONResponse({"detail": error.detail}, 422)
        except UserError as error:  # a language whose tools are not installed, a file's name
            return JSONResponse({"detail": BadFieldError("language", str(error)).detail}, 422)
        finally:
            self._busy -= 1
        return JSONResponse(fusion_answer(result))

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the arguments of `Sandbox.run` for the body of a request; fields that are not known are ignored."""
        try:
            order = json.loads(body)
        except (ValueError, RecursionError):
            raise BadFieldError("", "the body is no JSON") from None
        if not isinstance(order, dict):
            raise BadFieldError("", "the body is no object")
        for name in ("code", "language"):
            if not isinstance(order.get(name), str):
                raise BadFieldError(name, "field required: a text")
        if not isinstance(order.get("stdin") or "", str):
            raise BadFieldError("stdin", "a text or null")
        if order.get("fetch_files"):
            raise BadFieldError("fetch_files", "this server returns no files")
        timeout = _number(order, "run_timeout", 10.0)
        _number(order, "compile_timeout", 10.0)
        memory = _number(order, "memory_limit_MB", -1)
        limits = replace(
            self._most,
            timeout=min(max(timeout, 0.05), self._most.timeout),
            memory_mb=self._most.memory_mb if memory <= 0 else min(max(int(memory), 32), self._most.memory_mb),
        )
        return {
            "program": order["code"],
            "stdin": order.get("stdin") or "",
            "limits": limits,
            "files": _files(order.get("files")),
            "name": order["language"],
        }

    def close(self) -> None:
        """Wait for programs that run, and end the pool."""
        self._threads.shutdown(cancel_futures=True)
        self._sandbox.close()


def make_fusion_app(service: Fusion, token: str, hosts: Hosts) -> ASGIApp:
    """Return the ASGI application of a service."""

    async def ping(request: Request) -> Response:
        return JSONResponse("pong")

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return error.response()

    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse(_answer("SandboxError", "the sandbox failed; its log says why", None, None), 500)

    routes = [
        Route("/run_code", service.run_code, methods=["POST"]),
        Route("/v1/ping", ping, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={ApiError: refuse, Exception: failed})
    return Access(app, token, hosts, Metrics({}))


def fusion_answer(result: Result) -> dict[str, Any]:
    """Return a result as Sandbox Fusion writes it."""
    compiling = result.status == "compile_error"
    limited = result.status in _LIMITED
    ran = {
        "status": "TimeLimitExceeded" if limited else "Finished",
        "execution_time": result.seconds,
        "return_code": None if limited else (result.exit_code if result.exit_code is not None else -9),
        "stdout": result.stdout,
        "stderr": result.stderr,
    }
    if result.status == "lost":
        return _answer("SandboxError", "the process that runs programs was lost; send it again", None, None)
    compiled = None
    if compiling:
        compiled = ran
    elif result.compile_output is not None:
        compiled = {"status": "Finished", "execution_time": 0.0, "return_code": 0, "stdout": "", "stderr": ""}
        compiled["stderr"] = result.compile_output
    status = "Success" if result.status == "ok" else "Failed"
    return _answer(status, "", compiled, None if compiling else ran)


def _answer(status: str, message: str, compiled: Any, ran: Any) -> dict[str, Any]:
    results = {"compile_result": compiled, "run_result": ran}
    return {"status": status, "message": message, **results, "executor_pod_name": None, "files": {}}


def _number(order: dict[str, Any], name: str, default: float) -> float:
    """Return a field that is a number or the text of one."""
    value = order.get(name, default)
    try:
        number = float(value) if not isinstance(value, bool) and isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or number != number or abs(number) > 1e9:
        raise BadFieldError(name, "a number")
    return number


def _files(given: Any) -> dict[str, bytes]:
    """Return the files of a request; null content is an empty file, as in Sandbox Fusion."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadFieldError("files", "an object of paths and base64 texts")
    try:
        return {name: base64.b64decode(text or "", validate=True) for name, text in given.items()}
    except (binascii.Error, ValueError, TypeError):
        raise BadFieldError("files", "an object of paths and base64 texts") from None
