"""Request objects. A field that is not here is refused, so that nothing is silently ignored.

These models are also the request schemas of /openapi.json. Fields that OpenAI has and whet cannot do are here with the
one value that changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

MOST_STOPS = 16
MOST_TOPS = 20
MOST_PROMPTS = 1024


def _whole(value: object) -> object:
    """JSON has one kind of number: 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _true_or_false(value: object) -> object:
    """To Python 0 is False; to JSON it is not."""
    if value is not None and not isinstance(value, bool):
        raise ValueError("should be true or false")
    return value


WHOLE, BOOL = BeforeValidator(_whole), BeforeValidator(_true_or_false)
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63), WHOLE]
TokenId = Annotated[int, Field(ge=0, lt=2**31), WHOLE]
StopText = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Nothing = Annotated[float, Field(ge=0, le=0)]


class Strict(BaseModel):
    """Types as JSON has them, no other fields, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TextPart(Strict):
    """Text inside a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Strict):
    """An image as a data: URL; addresses and paths are not followed."""

    url: Annotated[str, Field(pattern="^data:")]
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(Strict):
    """An image inside a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class CalledFunction(Strict):
    """A function that the model called."""

    name: Name
    arguments: str


class ToolCall(Strict):
    """A call that the model made in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class InstructionMessage(Strict):
    """System message; `developer` is another name of `system`."""

    role: Literal["system", "developer"]
    content: str | list[TextPart]
    name: str | None = None


class UserMessage(Strict):
    """A turn of the user's, with images for a model that sees."""

    role: Literal["user"]
    content: str | Annotated[list[Annotated[TextPart | ImagePart, Field(discriminator="type")]], Field(min_length=1)]
    name: str | None = None


class AssistantMessage(Strict):
    """An earlier turn of the model's."""

    role: Literal["assistant"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(Strict):
    """Result of a tool call."""

    role: Literal["tool"]
    content: str | list[TextPart]
    tool_call_id: str


Message = Annotated[InstructionMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Strict):
    """A function that the model may call."""

    name: Name
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: Annotated[Literal[False], BOOL] | None = None


class Tool(Strict):
    """A tool as chat templates take it."""

    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    """The function that must be called."""

    name: Name


class NamedTool(Strict):
    """Choice of one tool, which the response must call."""

    type: Literal["function"]
    function: NamedFunction


class StreamOptions(Strict):
    """Options of a stream."""

    include_usage: bool = False


class PlainText(Strict):
    """The only format there is."""

    type: Literal["text"]


class Sampling(Strict):
    """Sampling parameters of both endpoints; null means the server's own setting."""

    model: Annotated[str, Field(max_length=1024)]
    n: Annotated[int, Field(ge=1), WHOLE] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31), WHOLE] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31), WHOLE] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Seed | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=256)] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    return_token_ids: bool = False
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Nothing | None = None
    frequency_penalty: Nothing | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    user: str | None = None

    @property
    def tokens_wanted(self) -> int | None:
        """The most tokens of a response; None for as many as there is room for."""
        return self.max_tokens

    @property
    def tops(self) -> int | None:
        """Number of likeliest tokens to report at each position; None for no log-probs at all."""
        return None


class ChatRequest(Sampling):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31), WHOLE] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOPS), WHOLE] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: Annotated[Literal[True], BOOL] | None = None
    response_format: PlainText | None = None
    metadata: dict[str, str] | None = None
    store: Annotated[Literal[False], BOOL] | None = None
    service_tier: Literal["auto", "default"] | None = None

    @property
    def splits(self) -> bool:
        """True if the answer has a place for reasoning also where no tools are offered."""
        return False

    @property
    def offered(self) -> list[Tool]:
        """Tools that the response may call."""
        return (self.tools or []) if self.tool_choice != "none" else []

    @property
    def tokens_wanted(self) -> int | None:
        """The newer name of the limit goes before the older one."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def tops(self) -> int | None:
        """Chats say with one field whether and with another how many."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(Sampling):
    """POST /v1/completions; a prompt is text or token ids, and there may be several."""

    prompt: (
        str
        | Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
        | Annotated[
            list[Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]],
            Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True),
        ]
    )
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOPS), WHOLE] | None = None
    echo: Annotated[Literal[False], BOOL] | None = None
    suffix: None = None
    best_of: Annotated[int, Field(ge=1, le=1), WHOLE] | None = None

    @property
    def tops(self) -> int | None:
        """Completions say both with one field."""
        return self.logprobs


class WeightsRequest(Strict):
    """POST /v1/weights: go on with the weights in a folder of this machine."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    version: Annotated[int, Field(ge=0, lt=2**53), WHOLE] | None = None
    in_flight: Literal["finish", "cut"] = "finish"
