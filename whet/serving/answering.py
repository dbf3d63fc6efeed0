"""One request on its way: its prompts, its turn at the engine, and its answer, whole or as events.

A turn ends with the last token. What was written and not read yet is sent afterwards, so that a client that has stopped
reading holds up neither other requests nor new weights.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.types import Receive, Send

from whet.chat.calls.format import thoughts_only
from whet.errors import UserError
from whet.rollout.engine import EngineGoneError
from whet.serving.answers import Usage
from whet.serving.errors import ApiError, engine_gone
from whet.serving.formats import Form
from whet.serving.gate import Ticket
from whet.serving.guard import ClientGoneError, guarded
from whet.serving.outbox import Outbox
from whet.serving.prompts import Job
from whet.serving.requests import ChatRequest, Sampling
from whet.serving.service import LARGE, Service
from whet.serving.tools import CallReader
from whet.serving.writer import Added, Writer

R = TypeVar("R", bound=Sampling)
_LAST_WORDS = 2.0  # seconds for a client to take the note that its answer was cut
_MANY = 2000  # log-probs that the event loop writes as JSON by itself
_PART = 65536  # bytes of a whole answer that are sent at once
_log = logging.getLogger("whet.serving")


class Answering(Generic[R]):
    """Answers one request."""

    def __init__(
        self,
        service: Service,
        request: R,
        prompts: Callable[[R], Job],
        form: Callable[[Job], Form[R]],
        ticket: Ticket,
        arrived: float,
    ) -> None:
        """`prompts` may be called in another thread; `form` when the turn begins, with the version of that moment."""
        self._service, self._request, self._prompts, self._form = service, request, prompts, form
        self._ticket, self._arrived = ticket, arrived
        self._send: Send = _nobody
        self._head_sent = False
        self._sent_in: Form[R] | None = None  # set before the head is sent
        self._written = 0

    async def run(self, receive: Receive, send: Send, size: int) -> None:
        """Answer, unless the client, the clock or the server ends it; a stream that began ends with a note."""
        self._send = send
        deadline = self._arrived + self._service.config.serve.request_timeout
        try:
            await guarded(self._answer(size), receive, self._ticket, deadline)
        except EngineGoneError:
            await self._fail(engine_gone())
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
        if not self._head_sent or self._sent_in is None:
            raise error
        if not self._request.stream:  # half an answer has no place for a note
            raise ClientGoneError
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._send_part(self._sent_in.failure(error), more=False)
        except TimeoutError:
            raise ClientGoneError from None

    async def _answer(self, size: int) -> None:
        service = self._service
        seen = await service.read(size, service.maker.pixels, self._request)
        async with service.pixels.hold(seen), AsyncExitStack() as turn:
            job = await service.read(max(size, LARGE if seen else 0), self._prompts, self._request)
            await turn.enter_async_context(service.gate.turn(self._ticket))
            service.metrics.count("whet_prompt_tokens_total", job.prompt_tokens)
            form = self._sent_in = self._form(job)
            headers = {"x-whet-version": str(service.version)}
            await (self._stream if self._request.stream else self._whole)(form, job, headers, turn)

    async def _whole(self, form: Form[R], job: Job, headers: dict[str, str], turn: AsyncExitStack) -> None:
        writers = self._writers(job)
        choices = [(writer, Added()) for writer in writers]
        async with aclosing(self._added(job, writers)) as pieces:
            async for index, added in pieces:
                whole = choices[index][1]
                whole += added
        await turn.aclose()
        answer = await self._written_by(self._written, lambda: form.answer(choices, self._usage(job)))
        body = answer.encode()
        await self._send_head("application/json", headers | {"content-length": str(len(body))})
        for start in range(0, len(body), _PART):
            await self._send_part(body[start : start + _PART], more=start + _PART < len(body))

    async def _stream(self, form: Form[R], job: Job, headers: dict[str, str], turn: AsyncExitStack) -> None:
        writers, outbox = self._writers(job), Outbox()
        producer = asyncio.create_task(self._produce(job, writers, outbox, turn))
        try:
            async for index, added in outbox.taken():
                make = partial(form.frames, index, writers[index], added)
                frames = await self._written_by(len(added.ids), make)
                if frames is not None:
                    await self._send_frames(frames, headers)
                if outbox.is_filled:
                    await asyncio.sleep(0)  # a stream with much to say does not keep others from the event loop
        finally:
            producer.cancel()
            await asyncio.gather(producer, return_exceptions=True)
        await self._send_frames(form.ending(self._usage(job)), headers, more=False)

    async def _produce(self, job: Job, writers: list[Writer], outbox: Outbox, turn: AsyncExitStack) -> None:
        """Fill the outbox at the engine's pace, then give the turn back."""
        failure: Exception | None = None
        try:
            async with aclosing(self._added(job, writers)) as pieces:
                async for index, added in pieces:
                    outbox.add(index, added)
            await turn.aclose()
        except Exception as error:
            failure = error
        outbox.end(failure)

    async def _added(self, job: Job, writers: list[Writer]) -> AsyncGenerator[tuple[int, Added], None]:
        loop, first = asyncio.get_running_loop(), True
        streamed = bool(self._request.stream)
        async with aclosing(self._service.pieces(job.prompts, job.params, streamed)) as pieces:
            async for piece in pieces:
                if first:
                    first = False
                    self._service.metrics.observe("whet_first_token_seconds", loop.time() - self._arrived)
                self._written += len(piece.ids)
                index = piece.prompt * job.params.n + piece.index
                yield index, writers[index].add(piece)

    def _writers(self, job: Job) -> list[Writer]:
        vocabulary, stop, reader = self._service.vocabulary, job.params.stop, None
        service, request = self._service, self._request
        if isinstance(request, ChatRequest) and (request.offered or request.splits):
            tools = [tool.model_dump(exclude_none=True) for tool in request.offered]
            form = service.format if tools else thoughts_only(service.format)
            reader = CallReader(form, service.marked, tools, job.begun, job.thinks)
        return [Writer(vocabulary, self._request, stop, reader) for _ in range(len(job.prompts) * job.params.n)]

    def _usage(self, job: Job) -> Usage:
        prompt, written = job.prompt_tokens, self._written
        return Usage(prompt_tokens=prompt, completion_tokens=written, total_tokens=prompt + written)

    async def _written_by(self, tokens: int, write: Callable[[], Any]) -> Any:
        """Write JSON, in another thread if there is much of it."""
        tops = self._request.tops
        many = tokens // 32 if tops is None else tokens * (1 + tops)
        return write() if many <= _MANY else await asyncio.to_thread(write)

    async def _send_head(self, kind: str, headers: dict[str, str]) -> None:
        raw: list[Any] = [(name.encode(), value.encode()) for name, value in ({"content-type": kind} | headers).items()]
        self._head_sent = True
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _send_frames(self, frames: bytes, headers: dict[str, str], more: bool = True) -> None:
        if not self._head_sent:
            # Nothing is sent before the first tokens are there, so that what goes wrong until then has a status.
            await self._send_head("text/event-stream; charset=utf-8", headers | {"cache-control": "no-cache"})
        await self._send_part(frames, more)

    async def _send_part(self, body: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


async def _nobody(message: Any) -> None:
    raise RuntimeError("an answer is sent once its request runs")
