"""Endpoints that write: from a body to an answer, or to a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from starlette.types import Receive, Scope, Send

from whet.serving.answering import Answering
from whet.serving.errors import ApiError
from whet.serving.formats import Form
from whet.serving.guard import ClientGoneError, drain_for, guarded, read_body
from whet.serving.prompts import Job
from whet.serving.requests import Sampling
from whet.serving.service import Service

R = TypeVar("R", bound=Sampling)


class Generation(Generic[R]):
    """One of the endpoints, as an ASGI application."""

    def __init__(
        self, service: Service, read: Callable[[bytes], R], form: Callable[..., Form[R]], prompts: Callable[[R], Job]
    ) -> None:
        """`read` makes a request of a body and `prompts` its prompts, in another thread if it is long.

        `form` is a kind of `Form`.
        """
        self.service = service
        self._read = read
        self._form = form
        self._prompts = prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, limits = self.service, self.service.config.serve
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        body: bytes | None = None
        try:
            with service.gate.ticket() as ticket:
                most = int(limits.max_body_mb * 1e6)
                body = await read_body(receive, dict(scope["headers"]), most, limits.body_timeout)
                size = len(body)
                request = await guarded(self._parsed(body), receive, ticket, arrived + limits.request_timeout)
                body = b""  # it was read, and is not needed any more
                if request.model != service.name:
                    text = f"there is no model {request.model!r}; this server has {service.name!r}"
                    raise ApiError(404, text, "model_not_found", "model")
                answering = Answering(service, request, self._prompts, partial(self.form, request), ticket, arrived)
                await answering.run(receive, send, size)
        except ClientGoneError:
            service.metrics.count("whet_clients_gone_total")
        except ApiError as error:
            if body is None and error.status in (429, 503):
                await drain_for(error, receive)
            raise
        finally:
            service.metrics.observe("whet_request_seconds", loop.time() - arrived)

    async def _parsed(self, body: bytes) -> R:
        return await self.service.read(len(body), self._read, body)

    def form(self, request: R, job: Job) -> Form[R]:
        """Return the response's format; the version is read when it begins, and stays until it ends."""
        service = self.service
        return self._form(request, job, service.name, service.version, service.fingerprint)
