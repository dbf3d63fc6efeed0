"""Run programs on a server with Sandbox Fusion's HTTP API: ByteDance's, or `whet sandbox serve`.

`RemoteSandbox.run` takes the arguments of `Sandbox.run`. The server decides how programs are confined. A token for it
is read from $WHET_SANDBOX_TOKEN.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from whet.errors import UserError
from whet.sandbox.limits import Limits, Result, Status
from whet.sandbox.names import check_name

TOKEN = "WHET_SANDBOX_TOKEN"
_ATTEMPTS, _PAUSE = 3, 1.0  # seconds before the second attempt, doubled before the third
_AGAIN = (429, 502, 503, 504)
_COMPILE_SECONDS = 30.0
_MARGIN = 15.0  # seconds beyond the limits of a program that its answer may take
_LARGEST = 64 << 20  # bytes of an answer


class RemoteError(Exception):
    """The server could not be reached or did not answer as its API says."""


class RemoteSandbox:
    """A client of one server; may be used from several threads at once."""

    def __init__(self, url: str, limits: Limits | None = None, token: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"sandbox.url={url}: write an address such as http://host:8080")
        path = parts.path.rstrip("/")
        self._address = f"{parts.scheme}://{parts.netloc}{path if path.endswith('/run_code') else path + '/run_code'}"
        self.limits = limits or Limits()
        self._token = token if token is not None else os.environ.get(TOKEN)

    def run(
        self,
        program: str,
        stdin: str | bytes = "",
        limits: Limits | None = None,
        files: Mapping[str, bytes] | None = None,
        name: str = "python",
    ) -> Result:
        """Run a program there and return what it wrote; RemoteError if the server fails."""
        bounds = limits or self.limits
        for each in files or {}:
            check_name(each)
        body = {
            "code": program,
            "language": name,
            "stdin": stdin if isinstance(stdin, str) else stdin.decode("utf-8", "replace"),
            "compile_timeout": _COMPILE_SECONDS,
            "run_timeout": bounds.timeout,
            "memory_limit_MB": bounds.memory_mb,
            "files": {path: base64.b64encode(content).decode() for path, content in (files or {}).items()},
            "fetch_files": [],
        }
        answer = self._post(json.dumps(body).encode(), bounds.timeout + _COMPILE_SECONDS + _MARGIN)
        return read_answer(answer, bounds)

    def close(self) -> None:
        """Do nothing: there is nothing to end here."""

    def __enter__(self) -> RemoteSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, body: bytes, seconds: float) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._address, body, headers)
        for attempt in range(_ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=seconds) as response:
                    return json.loads(response.read(_LARGEST))
            except urllib.error.HTTPError as error:
                text = error.read(2000).decode(errors="replace")
                if error.code in (401, 403):
                    raise UserError(f"sandbox.url: {self._address} wants another token: set ${TOKEN}") from None
                if error.code not in _AGAIN or attempt == _ATTEMPTS - 1:
                    raise RemoteError(f"{self._address} answered {error.code}: {text}") from None
            except (OSError, ValueError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise RemoteError(f"{self._address}: {error}") from None
            time.sleep(_PAUSE * 2**attempt)
        raise AssertionError("unreachable")


def read_answer(answer: Any, limits: Limits) -> Result:
    """Return Sandbox Fusion's answer as a result."""
    try:
        if answer["status"] == "SandboxError":
            raise RemoteError(f"the sandbox failed: {answer.get('message', '')}")
        compiled, ran = answer.get("compile_result"), answer.get("run_result")
        output = compiled and (compiled.get("stdout") or "") + (compiled.get("stderr") or "")
        found = ran or compiled
        status: Status = "ok"
        code = found["return_code"]
        if found["status"] == "TimeLimitExceeded":
            status = "timeout"
        elif ran is None:
            status = "compile_error"
        elif code:
            status = "signal" if code < 0 else "error"
        stdout, stderr = ((found.get(stream) or "")[: limits.output_bytes] for stream in ("stdout", "stderr"))
        return Result(status, code, stdout, stderr, float(found["execution_time"] or 0.0), compile_output=output)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RemoteError(f"the server's answer is not Sandbox Fusion's: {error!r}") from None
