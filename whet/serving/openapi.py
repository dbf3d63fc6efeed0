"""/openapi.json: what the server takes and gives, made of the very models that read and write it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from whet import __version__
from whet.serving import answers, requests

_REF = "#/components/schemas/{model}"
_ERRORS = {
    "400": "the request is malformed, or the model cannot do what it asks for",
    "401": "the token is missing or wrong",
    "403": "the Host, the Origin or the folder is not allowed",
    "404": "there is no such model or folder",
    "408": "the body was too slow",
    "409": "another update is under way",
    "413": "the body is too large",
    "429": "too many requests wait",
    "500": "the engine failed",
    "503": "the server is shutting down, or the weights were replaced",
    "504": "the request took too long",
}
_GENERATION = ("400", "401", "403", "404", "408", "413", "429", "500", "503", "504")


def describe(model: str, vocabulary: int, most_samples: int, sees: bool) -> dict[str, Any]:
    """The description of a server of this model."""
    schemas = _schemas()
    _narrow(schemas, model, vocabulary, most_samples, sees)
    chat = _generation("ChatRequest", "ChatAnswer", "chatCompletion", "The next turn of a chat.")
    completion = _generation("CompletionRequest", "CompletionAnswer", "completion", "How texts or token ids go on.")
    one_model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "enum": [model]}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "whet serve",
            "version": __version__,
            "description": "OpenAI's API on whet's engines. Every answer says which version of the weights wrote it.",
        },
        "security": [{"token": []}],
        "paths": {
            "/v1/models": {"get": _get("models", "The model that is served.", "ModelList", ("401", "403"))},
            "/v1/models/{model}": {
                "get": _get("model", "The same by its name.", "Model", ("401", "403", "404"))
                | {"parameters": [one_model]}
            },
            "/v1/chat/completions": {"post": chat},
            "/v1/completions": {"post": completion},
            "/v1/responses": {"post": _translated("response", "OpenAI's Responses, read as a chat.")},
            "/v1/messages": {"post": _translated("message", "Anthropic's Messages, read as a chat.")},
            "/v1/messages/count_tokens": {"post": _translated("countTokens", "Tokens of such a request.")},
            "/v1/weights": {"post": _weights()},
            "/health": {"get": _get("health", "Whether requests are taken.", "Health", ("403",)) | {"security": []}},
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "Counts and times for Prometheus.",
                    "responses": {
                        "200": {"description": "text", "content": {"text/plain": {"schema": {"type": "string"}}}},
                        **_errors(("401", "403")),
                    },
                }
            },
            "/openapi.json": {
                "get": {
                    "operationId": "openapi",
                    "summary": "This description.",
                    "security": [],
                    "responses": {
                        "200": {"description": "JSON", "content": {"application/json": {"schema": {"type": "object"}}}}
                    },
                }
            },
        },
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _schemas() -> dict[str, Any]:
    asked: list[type[BaseModel]] = [requests.ChatRequest, requests.CompletionRequest, requests.WeightsRequest]
    given: list[type[BaseModel]] = [
        answers.ChatAnswer,
        answers.ChatChunk,
        answers.CompletionAnswer,
        answers.ErrorAnswer,
        answers.Health,
        answers.ModelList,
        answers.WeightsAnswer,
    ]
    wanted: list[Any] = [(each, "validation") for each in asked] + [(each, "serialization") for each in given]
    return models_json_schema(wanted, ref_template=_REF)[1]["$defs"]


def _narrow(schemas: dict[str, Any], model: str, vocabulary: int, most_samples: int, sees: bool) -> None:
    """Write into the schemas what this model and this server allow."""
    for name in ("ChatRequest", "CompletionRequest"):
        schemas[name]["properties"]["model"]["enum"] = [model]
        for option in schemas[name]["properties"]["n"]["anyOf"]:
            if option["type"] == "integer":
                option["maximum"] = most_samples
    for option in schemas["CompletionRequest"]["properties"]["prompt"]["anyOf"]:
        ids = option.get("items", {})
        ids = ids.get("items", ids)
        if ids.get("type") == "integer":
            ids["maximum"] = vocabulary - 1
            ids.pop("exclusiveMaximum", None)
    if not sees:
        content = schemas["UserMessage"]["properties"]["content"]
        for option in content["anyOf"]:
            if option.get("type") == "array":
                option["items"] = {"$ref": _REF.format(model="TextPart")}
        del schemas["ImagePart"], schemas["ImageUrl"]


def _get(operation: str, summary: str, schema: str, errors: tuple[str, ...]) -> dict[str, Any]:
    return {"operationId": operation, "summary": summary, "responses": {"200": _json(schema), **_errors(errors)}}


def _generation(asked: str, given: str, operation: str, summary: str) -> dict[str, Any]:
    whole = _json(given)
    event = "ChatChunk" if given == "ChatAnswer" else given
    text = f"With stream: events whose data is a {event} in JSON, then [DONE]. One with `error` ends it early."
    data = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    whole["content"]["text/event-stream"] = {"schema": data | {"description": text}}
    whole["headers"] = {
        "x-whet-version": {"description": "version of the weights", "schema": {"type": "integer"}, "required": True}
    }
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": _body(asked),
        "responses": {"200": whole, **_errors(_GENERATION)},
    }


def _translated(operation: str, summary: str) -> dict[str, Any]:
    """Describe an endpoint of another API, whose objects are described by its makers."""
    anything = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": {"required": True, "content": anything},
        "responses": {"200": {"description": "as the API has it", "content": anything}, **_errors(_GENERATION)},
    }


def _weights() -> dict[str, Any]:
    return {
        "operationId": "updateWeights",
        "summary": "Go on with the weights in a folder of the server's machine.",
        "requestBody": _body("WeightsRequest"),
        "responses": {
            "200": _json("WeightsAnswer"),
            **_errors(("400", "401", "403", "404", "408", "409", "413", "500")),
        },
    }


def _body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": _REF.format(model=schema)}}}}


def _json(schema: str) -> dict[str, Any]:
    reference = {"$ref": _REF.format(model=schema)}
    return {"description": schema, "content": {"application/json": {"schema": reference}}}


def _errors(codes: tuple[str, ...]) -> dict[str, Any]:
    return {code: _json("ErrorAnswer") | {"description": _ERRORS[code]} for code in codes}
