"""Answers that are not successes, in OpenAI's form or in Anthropic's."""

from __future__ import annotations

import json
import math

from starlette.responses import Response

from whet.chat.apis.messages_answer import error_answer
from whet.serving.answers import ErrorAnswer, ErrorBody

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """Something that ends a request: its status, and a sentence that says what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.answer = ErrorAnswer(error=ErrorBody(message=message, type=kind, param=param, code=code))

    def response(self, path: str = "") -> Response:
        """The same over HTTP, in the form of the API that a path belongs to."""
        body = self.answer.model_dump_json()
        if path.startswith("/v1/messages"):
            body = json.dumps(error_answer(self.status, str(self)))
        return Response(body, self.status, self.headers, "application/json")

    def event(self) -> bytes:
        """The same inside a stream that has begun."""
        return b"data: " + self.answer.model_dump_json().encode() + b"\n\n"


def engine_gone() -> ApiError:
    """An answer that cannot come, because the engine has ended."""
    return ApiError(500, "the engine has ended, and the server ends with it", "engine_failed")


def come_back(status: int, message: str, code: str, seconds: float) -> ApiError:
    """An answer that asks the client to try again later."""
    return ApiError(status, message, code, headers={"Retry-After": str(max(1, math.ceil(seconds)))})
