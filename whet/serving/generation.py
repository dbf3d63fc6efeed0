"""POST /v1/chat/completions and /v1/completions: from a body to an answer, or to a stream of events."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whet.errors import UserError
from whet.rollout.engine import EngineGoneError
from whet.serving.answers import Usage
from whet.serving.errors import ApiError
from whet.serving.formats import Form
from whet.serving.gate import Ticket
from whet.serving.guard import ClientGoneError, drain, guarded, read_body
from whet.serving.prompts import Job
from whet.serving.requests import ChatRequest, Sampling, Strict
from whet.serving.service import Service
from whet.serving.writer import Added, Writer

R = TypeVar("R", bound=Sampling)
S = TypeVar("S", bound=Strict)
DONE = b"data: [DONE]\n\n"
_FORM = re.compile(r"str|none|literal\[.*|constrained-.*|list\[.*|function-.*")
_MOST_REASONS = 4
_LAST_WORDS = 2.0  # seconds for a client to take the note that its answer was cut
_log = logging.getLogger("whet.serving")


def parse(kind: type[S], body: bytes) -> S:
    """The body as a request; 400 names the field that is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        where = _field(errors[0]["loc"])
        # A field that takes several forms has an error for each of them.
        reasons = dict.fromkeys(each["msg"] for each in errors if _field(each["loc"]) == where)
        said = "; or: ".join(list(reasons)[:_MOST_REASONS])
        raise ApiError(400, f"{where or 'the body'}: {said}", param=where or None) from None


def _field(path: tuple[int | str, ...]) -> str:
    """Where in a body an error is, without the names that pydantic gives to the forms of a field."""
    return ".".join(str(part) for part in path if not _FORM.fullmatch(str(part)))


class Generation(Generic[R]):
    """One of the two endpoints, as an ASGI application."""

    def __init__(self, service: Service, kind: type[R], form: type[Form[R]], prompts: Callable[[R], Job]) -> None:
        self.service = service
        self._kind = kind
        self._form = form
        self._prompts = prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, limits = self.service, self.service.config.serve
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        try:
            with service.gate.ticket() as ticket:
                most = int(limits.max_body_mb * 1e6)
                body = await read_body(receive, dict(scope["headers"]), most, limits.body_timeout)
                request = parse(self._kind, body)
                del body
                if request.model != service.name:
                    text = f"there is no model {request.model!r}; this server has {service.name!r}"
                    raise ApiError(404, text, "model_not_found", "model")
                answering = _Answering(self, request, receive, send, ticket, arrived)
                await answering.run()
        except ClientGoneError:
            service.metrics.count("whet_clients_gone_total")
        except ApiError as error:
            if error.status in (429, 503):
                await drain(receive)
            raise
        finally:
            service.metrics.observe("whet_request_seconds", loop.time() - arrived)

    async def job(self, request: R) -> Job:
        """The prompts of a request, made in another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.service.readers, self._prompts, request)

    def form(self, request: R, job: Job) -> Form[R]:
        """How the answer looks; the version is read when it begins, and stays until it ends."""
        service = self.service
        return self._form(request, job, service.name, service.version, service.fingerprint)


class _Answering(Generic[R]):
    """One request on its way."""

    def __init__(
        self, endpoint: Generation[R], request: R, receive: Receive, send: Send, ticket: Ticket, arrived: float
    ) -> None:
        self._endpoint = endpoint
        self._request = request
        self._service = endpoint.service
        self._receive, self._send, self._ticket, self._arrived = receive, send, ticket, arrived
        self._begun = False  # whether a stream has
        self._written = 0

    async def run(self) -> None:
        """Answer, unless the client, the clock or the server ends it; a stream that began ends with a note."""
        deadline = self._arrived + self._service.config.serve.request_timeout
        try:
            await guarded(self._answer(), self._receive, self._ticket, deadline)
        except EngineGoneError:
            await self._fail(ApiError(500, "the engine has ended, and the server ends with it", "engine_failed"))
        except UserError as error:
            await self._fail(ApiError(400, str(error)))
        except ApiError as error:
            await self._fail(error)
        except ClientGoneError:
            raise
        except Exception:
            _log.exception("a request failed")
            await self._fail(ApiError(500, "the engine failed; the server's log says why", "engine_failed"))
        finally:
            self._service.metrics.count("whet_completion_tokens_total", self._written)

    async def _fail(self, error: ApiError) -> None:
        if not self._begun:
            raise error
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._send_part(error.event() + DONE, more=False)
        except TimeoutError:
            raise ClientGoneError from None

    async def _answer(self) -> None:
        service = self._service
        job = await self._endpoint.job(self._request)
        async with service.gate.turn(self._ticket):
            service.metrics.count("whet_prompt_tokens_total", job.prompt_tokens)
            form = self._endpoint.form(self._request, job)
            headers = {"x-whet-version": str(service.version)}
            answer = self._stream(form, job, headers) if self._request.stream else self._whole(form, job, headers)
            await answer

    async def _whole(self, form: Form[R], job: Job, headers: dict[str, str]) -> None:
        writers = self._writers(job)
        choices = [(writer, Added()) for writer in writers]
        async for index, added in self._added(job, writers):
            whole = choices[index][1]
            whole += added
        response = Response(form.answer(choices, self._usage(job)), 200, headers, "application/json")
        await response({"type": "http"}, self._receive, self._send)

    async def _stream(self, form: Form[R], job: Job, headers: dict[str, str]) -> None:
        writers = self._writers(job)
        async for index, added in self._added(job, writers):
            event = form.event(index, writers[index], added)
            if event is not None:
                await self._send_event(event, headers)
        options = self._request.stream_options
        if options is not None and options.include_usage:
            await self._send_event(form.last_event(self._usage(job)), headers)
        await self._send_part(DONE, more=False)

    async def _added(self, job: Job, writers: list[Writer]) -> AsyncIterator[tuple[int, Added]]:
        loop, first = asyncio.get_running_loop(), True
        async for piece in self._service.pieces(job.prompts, job.params, bool(self._request.stream)):
            if first:
                first = False
                self._service.metrics.observe("whet_first_token_seconds", loop.time() - self._arrived)
            self._written += len(piece.ids)
            index = piece.prompt * job.params.n + piece.index
            yield index, writers[index].add(piece)

    def _writers(self, job: Job) -> list[Writer]:
        tools = isinstance(self._request, ChatRequest) and bool(self._request.tools)
        tools = tools and getattr(self._request, "tool_choice", None) != "none"
        vocabulary, stop = self._service.vocabulary, job.params.stop
        return [Writer(vocabulary, self._request, stop, tools) for _ in range(len(job.prompts) * job.params.n)]

    def _usage(self, job: Job) -> Usage:
        prompt, written = job.prompt_tokens, self._written
        return Usage(prompt_tokens=prompt, completion_tokens=written, total_tokens=prompt + written)

    async def _send_event(self, event: str, headers: dict[str, str]) -> None:
        if not self._begun:
            # Nothing is sent before the first tokens are there, so that what goes wrong until then has a status.
            self._begun = True
            raw: list[Any] = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            raw += [(name.encode(), value.encode()) for name, value in headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        await self._send_part(b"data: " + event.encode() + b"\n\n", more=True)

    async def _send_part(self, body: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
