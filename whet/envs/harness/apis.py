"""APIs that a harness may speak: chat completions, Responses and Messages, each read and answered in its form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from whet.chat.apis.messages_answer import MessageAnswer, error_answer
from whet.chat.apis.messages_request import read_messages
from whet.chat.apis.reading import BadRequestError, Translated
from whet.chat.apis.responses_answer import ResponseAnswer, kept_turn
from whet.chat.apis.responses_request import read_responses
from whet.chat.apis.turn import Called, End, Finish, Turn
from whet.chat.messages import Message
from whet.envs.harness.calls import ChatCall, Reply, answer, answer_events, read_call
from whet.envs.harness.contents import RefusedError

Kept = dict[str, list[Message]]  # conversations of a sample by the id of the response that ends them


class Exchange(Protocol):
    """One request and its answer."""

    call: ChatCall

    def answer(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer."""
        ...

    def events(self, reply: Reply) -> Iterator[str]:
        """Yield the answer as events of a stream: the whole turn at once, for it is recorded before it is sent."""
        ...


class ChatExchange:
    """OpenAI's chat completions."""

    def __init__(self, body: Any, kept: Kept) -> None:
        self.call = read_call(body)

    def answer(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer."""
        return answer(self.call, reply)

    def events(self, reply: Reply) -> Iterator[str]:
        """Yield the answer as events of a stream."""
        return answer_events(self.call, reply)


class MessagesExchange:
    """Anthropic's Messages."""

    def __init__(self, body: Any, kept: Kept, counts: bool = False) -> None:
        """With `counts` the request asks for a number of tokens only."""
        self.call = _read(lambda: read_messages(body, False, counts))[1]
        self._answer = MessageAnswer(self.call.model)

    def answer(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer."""
        return self._answer.whole(_turn(reply.message), _end(reply))

    def events(self, reply: Reply) -> Iterator[str]:
        """Yield the answer as events of a stream."""
        return _framed(self._answer, reply)


class ResponsesExchange:
    """OpenAI's Responses."""

    def __init__(self, body: Any, kept: Kept) -> None:
        self._asked, call = _read(lambda: read_responses(body, False, kept.get))
        self.call = replace(call, marks_cuts=True)
        self._kept = kept
        self._answer = ResponseAnswer(self.call.model, self._asked.echo, self._asked.keep)

    def answer(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer."""
        self._keep(reply)
        return self._answer.whole(_turn(reply.message), _end(reply))

    def events(self, reply: Reply) -> Iterator[str]:
        """Yield the answer as events of a stream."""
        self._keep(reply)
        return _framed(self._answer, reply)

    def _keep(self, reply: Reply) -> None:
        # Also where store is false: a sample has few responses, and none outlives it.
        self._kept[self._answer.id] = [*self._asked.messages, kept_turn(_turn(reply.message))]


def error_body(path: str, error: RefusedError) -> dict[str, Any]:
    """Return an error in the form of the API that a path belongs to."""
    return error_answer(error.status, str(error)) if "/v1/messages" in path else error.body


def _read(read: Any) -> tuple[Translated, ChatCall]:
    try:
        asked: Translated = read()
    except BadRequestError as error:
        raise RefusedError(400, str(error), error.code or "invalid_request") from None
    return asked, replace(read_call(asked.chat), splits=True)


def _turn(message: Message) -> Turn:
    calls = [
        Called(call["id"], call["function"]["name"], json.dumps(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    return Turn(message.get("content") or "", message.get("reasoning_content") or "", calls)


def _end(reply: Reply) -> End:
    finish: Finish = "length" if reply.finish == "length" else "stop"
    finish = "tool_calls" if reply.message.get("tool_calls") else finish
    return End(finish, reply.prompt_tokens, reply.tokens, reply.stop)


def _framed(answer: MessageAnswer | ResponseAnswer, reply: Reply) -> Iterator[str]:
    turn = _turn(reply.message)
    for events in (answer.begin(reply.prompt_tokens), answer.add(turn), answer.end(_end(reply))):
        for name, data in events:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
