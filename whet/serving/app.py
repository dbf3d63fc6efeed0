"""The routes, and what they answer."""

from __future__ import annotations

import json
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whet.serving.access import Access
from whet.serving.answers import Answer, Health, Model, ModelList
from whet.serving.bodies import parse
from whet.serving.errors import ApiError
from whet.serving.formats import ChatForm, CompletionForm
from whet.serving.generation import Generation
from whet.serving.guard import ClientGoneError, read_body
from whet.serving.hosts import Hosts
from whet.serving.openapi import describe
from whet.serving.requests import ChatRequest, CompletionRequest, WeightsRequest
from whet.serving.service import LARGE, Service
from whet.serving.translated import (
    KeptConversations,
    MessageForm,
    ResponseForm,
    count_message,
    read_message,
    read_response,
)
from whet.serving.weights import update_weights

_WEIGHTS_BODY = 65536  # bytes: a path and a number
_LONGEST_PATH = 200


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    maker, limits = service.maker, service.config.serve

    async def weights(request: Request) -> Response:
        body = await _body(request, _WEIGHTS_BODY, limits.body_timeout)
        return _json(await update_weights(service, parse(WeightsRequest, body)))

    chat = Generation(service, partial(parse, ChatRequest), ChatForm, maker.chat)
    completion = Generation(service, partial(parse, CompletionRequest), CompletionForm, maker.completion)
    kept = KeptConversations()
    messages = Generation(service, read_message, MessageForm, maker.chat)
    responses = Generation(service, partial(read_response, kept), partial(ResponseForm, kept), maker.chat)

    async def count(request: Request) -> Response:
        body = await _body(request, int(limits.max_body_mb * 1e6), limits.body_timeout)
        tokens = await service.read(LARGE, partial(count_message, maker), body)
        return Response(json.dumps({"input_tokens": tokens}), media_type="application/json")

    app = Starlette(
        routes=[
            *_information(service),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completion, methods=["POST"]),
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/v1/weights", weights, methods=["POST"]),
        ],
        exception_handlers={ApiError: _refuse, HTTPException: _unrouted, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return Access(app, service.token, Hosts(limits.host, limits.allowed_hosts), service.metrics)


def _information(service: Service) -> list[Route]:
    """Routes that tell about the server and its model."""
    maker = service.maker
    description = json.dumps(describe(service.name, maker.vocabulary, service.config.serve.max_samples, service.sees))

    def model() -> Model:
        return Model(
            id=service.name,
            created=service.started,
            root=str(service.path),
            max_model_len=maker.max_len,
            version=service.version,
        )

    async def models(request: Request) -> Response:
        return _json(ModelList(data=[model()]))

    async def one_model(request: Request) -> Response:
        if request.path_params["model"] != service.name:
            raise ApiError(404, f"there is no such model; this server has {service.name!r}", "model_not_found", "model")
        return _json(model())

    async def health(request: Request) -> Response:
        gate = service.gate
        counts = {"version": service.version, "running": gate.running, "waiting": gate.waiting}
        return _json(Health(status="ending" if gate.ending else "ok", **counts))

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json")

    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{model:path}", one_model, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """Read the body of a request, of at most so many bytes and within so many seconds."""
    try:
        return await read_body(request.receive, dict(request.scope["headers"]), most, seconds)
    except ClientGoneError:
        raise ApiError(400, "the client left") from None


def _json(answer: Answer) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(request.scope["path"])


async def _unrouted(request: Request, error: Exception) -> Response:
    """Paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    # Not request.url, which is put together with the Host header and may be no address.
    asked = f"{request.method} {request.scope['path']}"[:_LONGEST_PATH]
    text = f"{asked}: {error.detail.lower()}; /openapi.json lists what there is"
    return ApiError(error.status_code, text, headers=dict(error.headers or {})).response(request.scope["path"])


async def _failed(request: Request, error: Exception) -> Response:
    """A bug: the server's log has its traceback."""
    failure = ApiError(500, "the server failed; its log says why", "server_failed")
    return failure.response(request.scope["path"])
