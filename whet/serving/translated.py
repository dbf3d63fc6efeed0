"""OpenAI's Responses and Anthropic's Messages on the server: read as chats, answered in their own form."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Any

from pydantic import PrivateAttr

from whet.chat.apis.messages_answer import MessageAnswer, error_answer
from whet.chat.apis.messages_request import read_messages
from whet.chat.apis.reading import BadRequestError, Translated
from whet.chat.apis.responses_answer import ResponseAnswer, kept_turn
from whet.chat.apis.responses_request import read_responses
from whet.chat.apis.turn import Called, End, Turn
from whet.chat.messages import Message
from whet.serving.answers import Usage
from whet.serving.bodies import build, parse_json
from whet.serving.errors import ApiError
from whet.serving.formats import Form
from whet.serving.prompts import Job, PromptMaker
from whet.serving.requests import ChatRequest
from whet.serving.writer import Added, Writer

MOST_KEPT = 1024  # responses that may be gone on from
MOST_KEPT_BYTES = 64 * 2**20  # of their conversations together, as JSON


class TranslatedChat(ChatRequest):
    """A chat that came as another API's request."""

    _asked: Translated = PrivateAttr()

    @property
    def asked(self) -> Translated:
        """The request as it was translated."""
        return self._asked

    @property
    def splits(self) -> bool:
        """Both APIs have a place for reasoning."""
        return True


class KeptConversations:
    """Conversations by the id of the response that ends them; the oldest are forgotten. For any thread."""

    def __init__(self) -> None:
        self._lock, self._bytes = Lock(), 0
        self._known: OrderedDict[str, bytes] = OrderedDict()

    def get(self, name: str) -> list[Message] | None:
        """Return the messages of a conversation."""
        with self._lock:
            found = self._known.get(name)
        return None if found is None else json.loads(found)

    def add(self, name: str, messages: list[Message]) -> None:
        """Keep a conversation."""
        data = json.dumps(messages).encode()
        with self._lock:
            self._known[name] = data
            self._bytes += len(data)
            while len(self._known) > MOST_KEPT or self._bytes > MOST_KEPT_BYTES:
                self._bytes -= len(self._known.popitem(last=False)[1])


def read_message(body: bytes) -> TranslatedChat:
    """Read a body of /v1/messages."""
    given = parse_json(body)
    return _built(lambda: read_messages(given, True))


def read_response(kept: KeptConversations, body: bytes) -> TranslatedChat:
    """Read a body of /v1/responses."""
    given = parse_json(body)
    return _built(lambda: read_responses(given, True, kept.get))


def count_message(maker: PromptMaker, body: bytes) -> int:
    """Return the number of tokens of a body of /v1/messages/count_tokens."""
    given = parse_json(body)
    return maker.chat(_built(lambda: read_messages(given, True, counts=True))).prompt_tokens


def _built(read: Any) -> TranslatedChat:
    try:
        asked: Translated = read()
    except BadRequestError as error:
        raise ApiError(400, str(error), error.code, error.param) from None
    request = build(TranslatedChat, asked.chat)
    request._asked = asked
    return request


class _Events:
    """Answer of another API in the making."""

    def __init__(self, answer: MessageAnswer | ResponseAnswer, prompt_tokens: int) -> None:
        self.answer, self._prompt_tokens = answer, prompt_tokens
        self.turn, self.added = Turn(), Added()
        self._begun = False

    def add(self, added: Added) -> bytes:
        """Return the events of a piece."""
        turn = _turn(added)
        self.turn.text += turn.text
        self.turn.reasoning += turn.reasoning
        self.turn.calls += turn.calls
        self.added = added
        events = [] if self._begun else list(self.answer.begin(self._prompt_tokens))
        self._begun = True
        return framed([*events, *self.answer.add(turn)])


class MessageForm(Form[TranslatedChat]):
    """Message of Anthropic's API."""

    prefix = "msg"

    def __init__(self, request: TranslatedChat, job: Job, model: str, version: int, fingerprint: str) -> None:
        super().__init__(request, job, model, version, fingerprint)
        self._events = _Events(MessageAnswer(model), job.prompt_tokens)
        self._writer: Writer | None = None

    def answer(self, choices: list[tuple[Writer, Added]], usage: Usage) -> str:
        """The whole answer as JSON."""
        ((writer, added),) = choices
        return json.dumps(self._events.answer.whole(_turn(added), _end(writer, added, usage)))

    def event(self, index: int, writer: Writer, added: Added) -> str | None:
        """Not used: a piece may be several events."""
        raise NotImplementedError

    def last_event(self, usage: Usage) -> str:
        """Not used: token counts are part of the last events."""
        raise NotImplementedError

    def frames(self, index: int, writer: Writer, added: Added) -> bytes | None:
        """Return the events of a piece."""
        self._writer = writer
        return self._events.add(added) or None

    def ending(self, usage: Usage) -> bytes:
        """Return the last events."""
        assert self._writer is not None, "a response has a piece at least"
        return framed(self._events.answer.end(_end(self._writer, self._events.added, usage)))

    def failure(self, error: ApiError) -> bytes:
        """Return what ends a stream that cannot be finished."""
        return framed([("error", error_answer(error.status, str(error)))])


class ResponseForm(MessageForm):
    """Response of OpenAI's API; it can be gone on from unless its request says otherwise."""

    prefix = "resp"

    def __init__(
        self,
        kept: KeptConversations,
        request: TranslatedChat,
        job: Job,
        model: str,
        version: int,
        fingerprint: str,
    ) -> None:
        super().__init__(request, job, model, version, fingerprint)
        self._kept, self._asked = kept, request.asked
        self._response = ResponseAnswer(model, request.asked.echo, request.asked.keep)
        self._events = _Events(self._response, job.prompt_tokens)

    def answer(self, choices: list[tuple[Writer, Added]], usage: Usage) -> str:
        """The whole answer as JSON."""
        self._keep(_turn(choices[0][1]))
        return super().answer(choices, usage)

    def ending(self, usage: Usage) -> bytes:
        """Return the last events."""
        self._keep(self._events.turn)
        return super().ending(usage)

    def failure(self, error: ApiError) -> bytes:
        """Return what ends a stream that cannot be finished."""
        return framed(self._response.failed(str(error), "server_error"))

    def _keep(self, turn: Turn) -> None:
        if self._asked.keep:
            self._kept.add(self._response.id, [*self._asked.messages, kept_turn(turn)])


def framed(events: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    """Return events as they are sent in a stream."""
    return b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in events)


def _turn(added: Added) -> Turn:
    return Turn(added.text, added.reasoning, [Called(call.id, call.name, call.arguments) for call in added.calls])


def _end(writer: Writer, added: Added, usage: Usage) -> End:
    assert added.finish is not None, "a whole answer has ended"
    finish = added.finish if not writer.calls else "tool_calls"
    return End(finish, usage.prompt_tokens, usage.completion_tokens, writer.stop)
