"""Response objects: OpenAI's, each with the version of the weights that wrote it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

Finish = Literal["stop", "length", "tool_calls"]


class Answer(BaseModel):
    """A part of an answer; nothing that is not declared is ever sent."""

    model_config = ConfigDict(extra="forbid")


class ErrorBody(Answer):
    """Error message of a response."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(Answer):
    """Every answer that is not a success."""

    error: ErrorBody


class Whet(Answer):
    """Provenance of a response: version of the weights, and the seed that reproduces it."""

    version: int
    seed: int


class Usage(Answer):
    """Tokens of all prompts and of all responses."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class TopToken(Answer):
    """A token that might have been written."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopToken):
    """A token that was written."""

    top_logprobs: list[TopToken]


class ChatLogprobs(Answer):
    """Log-probs of every token that was written, the one that ended the response included."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(Answer):
    """The same as /v1/completions has it."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class FunctionCall(Answer):
    """The function and its arguments as JSON."""

    name: str
    arguments: str


class ToolCallAnswer(Answer):
    """A call that the model wants made."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ToolCallDelta(ToolCallAnswer):
    """The same in a stream: always a whole call."""

    index: int


class AssistantAnswer(Answer):
    """The turn that the model wrote."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None  # with tools: what the model thought before it answered
    tool_calls: list[ToolCallAnswer] | None = None


class ChatChoice(Answer):
    """One of the n responses."""

    index: int
    message: AssistantAnswer
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish
    token_ids: list[int] | None = None


class ChatAnswer(Answer):
    """The answer to a chat."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    whet: Whet
    prompt_token_ids: list[int] | None = None


class Delta(Answer):
    """Addition to a turn; clients add up the fields, so missing ones are not sent as null."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None

    @model_serializer(mode="wrap")
    def _without_nulls(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class ChunkChoice(Answer):
    """Addition to one of the n responses."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish | None = None
    token_ids: list[int] | None = None


class ChatChunk(Answer):
    """An event of a streamed chat."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    system_fingerprint: str
    whet: Whet
    prompt_token_ids: list[int] | None = None


class CompletionChoice(Answer):
    """One response, or in a stream what was added to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Finish | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionAnswer(Answer):
    """The answer to /v1/completions, and an event of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    system_fingerprint: str
    whet: Whet


class Model(Answer):
    """The model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["whet"] = "whet"
    root: str
    max_model_len: int
    version: int


class ModelList(Answer):
    """There is one model."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(Answer):
    """Status of the server, and its number of requests."""

    status: Literal["ok", "ending"]
    version: int
    running: int
    waiting: int


class WeightsAnswer(Answer):
    """Weights served from now on."""

    path: str
    version: int
    seconds: float
