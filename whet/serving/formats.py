"""The two shapes of an answer: chats and completions, whole or as events of a stream."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from whet.serving.answers import (
    AssistantAnswer,
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChunkChoice,
    CompletionAnswer,
    CompletionChoice,
    Delta,
    Finish,
    FunctionCall,
    ToolCallAnswer,
    ToolCallDelta,
    Usage,
    Whet,
)
from whet.serving.errors import ApiError
from whet.serving.prompts import Job
from whet.serving.requests import ChatRequest, CompletionRequest, Sampling
from whet.serving.tools import Call
from whet.serving.writer import Added, Writer

R = TypeVar("R", bound=Sampling)
DONE = b"data: [DONE]\n\n"


class Form(ABC, Generic[R]):
    """Format of the response to one request."""

    prefix: str

    def __init__(self, request: R, job: Job, model: str, version: int, fingerprint: str) -> None:
        self.job = job
        self._common: dict[str, Any] = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
            "whet": Whet(version=version, seed=job.params.seed),
        }
        self._begun: set[int] = set()  # choices of which the client has seen something
        self._with_ids, self._with_log_probs = request.return_token_ids, request.tops is not None
        self._with_usage = request.stream_options is not None and request.stream_options.include_usage

    @abstractmethod
    def answer(self, choices: list[tuple[Writer, Added]], usage: Usage) -> str:
        """The whole answer as JSON."""

    @abstractmethod
    def event(self, index: int, writer: Writer, added: Added) -> str | None:
        """Return a piece's addition as JSON; None if it adds nothing."""

    @abstractmethod
    def last_event(self, usage: Usage) -> str:
        """The event that has the token counts."""

    def frames(self, index: int, writer: Writer, added: Added) -> bytes | None:
        """Return a piece's addition as it is sent in a stream; None if it adds nothing."""
        event = self.event(index, writer, added)
        return None if event is None else _framed(event)

    def ending(self, usage: Usage) -> bytes:
        """Return what ends a stream."""
        return (_framed(self.last_event(usage)) if self._with_usage else b"") + DONE

    def failure(self, error: ApiError) -> bytes:
        """Return what ends a stream that cannot be finished."""
        return error.event() + DONE

    def _silent(self, added: Added) -> bool:
        told = added.text or added.reasoning or added.calls or added.finish is not None
        return not told and not self._with_ids and not self._with_log_probs

    def _first(self, index: int) -> bool:
        if index in self._begun:
            return False
        self._begun.add(index)
        return True

    def _prompt_ids(self, index: int) -> list[int] | None:
        return self.job.prompts[index // self.job.params.n].ids if self._with_ids else None


class ChatForm(Form[ChatRequest]):
    """chat.completion and chat.completion.chunk."""

    prefix = "chatcmpl"

    def answer(self, choices: list[tuple[Writer, Added]], usage: Usage) -> str:
        """The whole answer as JSON."""
        made = [
            ChatChoice(
                index=index,
                message=AssistantAnswer(
                    content=added.text or (None if added.calls else ""),
                    reasoning_content=added.reasoning or None,
                    tool_calls=[_call(each) for each in added.calls] or None,
                ),
                logprobs=writer.chat_logprobs(added) if self._with_log_probs else None,
                finish_reason=_ended(added),
                token_ids=added.ids if self._with_ids else None,
            )
            for index, (writer, added) in enumerate(choices)
        ]
        return ChatAnswer(
            **self._common, choices=made, usage=usage, prompt_token_ids=self._prompt_ids(0)
        ).model_dump_json()

    def event(self, index: int, writer: Writer, added: Added) -> str | None:
        """Return a piece's addition as JSON; None if it adds nothing."""
        if self._silent(added):
            return None
        first = self._first(index)
        calls = [
            ToolCallDelta(index=place, **_call(call).model_dump())
            for place, call in enumerate(added.calls, added.first_call)
        ]
        choice = ChunkChoice(
            index=index,
            delta=Delta(
                role="assistant" if first else None,
                content=added.text if added.text or (first and not calls and not added.reasoning) else None,
                reasoning_content=added.reasoning or None,
                tool_calls=calls or None,
            ),
            logprobs=writer.chat_logprobs(added) if self._with_log_probs else None,
            finish_reason=added.finish,
            token_ids=added.ids if self._with_ids else None,
        )
        ids = self._prompt_ids(0) if first else None
        return ChatChunk(**self._common, choices=[choice], prompt_token_ids=ids).model_dump_json()

    def last_event(self, usage: Usage) -> str:
        """The event that has the token counts."""
        return ChatChunk(**self._common, choices=[], usage=usage).model_dump_json()


class CompletionForm(Form[CompletionRequest]):
    """text_completion, whole or in pieces."""

    prefix = "cmpl"

    def answer(self, choices: list[tuple[Writer, Added]], usage: Usage) -> str:
        """The whole answer as JSON."""
        made = [self._choice(index, writer, added, True) for index, (writer, added) in enumerate(choices)]
        return CompletionAnswer(**self._common, choices=made, usage=usage).model_dump_json()

    def event(self, index: int, writer: Writer, added: Added) -> str | None:
        """Return a piece's addition as JSON; None if it adds nothing."""
        if self._silent(added):
            return None
        choice = self._choice(index, writer, added, self._first(index))
        return CompletionAnswer(**self._common, choices=[choice]).model_dump_json()

    def last_event(self, usage: Usage) -> str:
        """The event that has the token counts."""
        return CompletionAnswer(**self._common, choices=[], usage=usage).model_dump_json()

    def _choice(self, index: int, writer: Writer, added: Added, first: bool) -> CompletionChoice:
        return CompletionChoice(
            index=index,
            text=added.text,
            logprobs=writer.completion_logprobs(added) if self._with_log_probs else None,
            finish_reason=added.finish,
            token_ids=added.ids if self._with_ids else None,
            prompt_token_ids=self._prompt_ids(index) if first else None,
        )


def _framed(event: str) -> bytes:
    return b"data: " + event.encode() + b"\n\n"


def _ended(added: Added) -> Finish:
    assert added.finish is not None, "a whole answer has ended"
    return added.finish


def _call(call: Call) -> ToolCallAnswer:
    return ToolCallAnswer(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
