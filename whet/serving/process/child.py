"""The engine's process, which the server starts.

Three threads besides the one of `boot.py`: this one takes messages, the engine's own writes, and one sends what was
written. A step of the engine is one message, whatever the number of responses; while the server is behind, steps add up
to fewer messages.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from transformers import PreTrainedModel

from whet.errors import UserError
from whet.rollout.engines.native.inbox import Inbox
from whet.rollout.engines.native.streaming import Reader
from whet.serving.backend import LocalBackend
from whet.serving.process.wire import (
    Add,
    Addition,
    Done,
    Drop,
    Failed,
    Forget,
    Grown,
    Inbound,
    Open,
    Read,
    Refused,
    Up,
    Use,
    messages,
    send,
)


def serve_one(connection: socket.socket) -> None:
    """Do what one server asks for, until it has gone."""
    inbound = messages(connection, Inbound(bytearray()))
    opening = next(inbound, None)
    if not isinstance(opening, Open):
        return
    try:
        backend = _opened(opening)
    except UserError as error:
        send(connection, Refused(str(error)))
        return
    outlet = Outlet(connection)
    outlet.send(Up(backend.version, backend.sees, backend.parameters))
    host = EngineHost(backend, outlet)
    with contextlib.suppress(OSError):  # the server was killed
        for message in inbound:
            host.take(message)
    os._exit(0)  # as in `end_with`


def _opened(opening: Open) -> LocalBackend:
    from whet.model.load import load_tokenizer

    loading = opening.loading
    chosen = loading.config.worker.actor.model
    tokenizer = load_tokenizer(loading.tokenizer, chosen.trust_remote_code)
    return LocalBackend(loading, tokenizer)


class Outlet:
    """Sends messages in a thread of its own; additions that wait go together."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = queue.SimpleQueue()
        self._additions: list[Addition] = []
        threading.Thread(target=self._run, name="whet-outlet", daemon=True).start()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Have a function called in the thread that sends."""
        self._calls.put((callback, args))

    def send(self, message: object) -> None:
        """Send a message behind all additions before it; called in any thread."""
        self.call_soon_threadsafe(self._send, message)

    def add(self, additions: list[Addition]) -> None:
        """Send additions with others; called in the thread that sends."""
        self._additions += additions

    def _send(self, message: object) -> None:
        self._flush()
        send(self._connection, message)

    def _flush(self) -> None:
        if self._additions:
            additions, self._additions = self._additions, []
            send(self._connection, Grown(additions))

    def _run(self) -> None:
        try:
            while True:
                callback, args = self._calls.get()
                callback(*args)
                if self._calls.empty():
                    self._flush()
        except OSError:  # the server has gone, which the thread that receives sees too
            return
        except BaseException as error:  # no answer would ever come: the server is told by the end of this process
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(1)


class Feed(Reader):
    """Passes on what the responses to one message have grown by."""

    def __init__(self, outlet: Outlet, added: Add, gone: Callable[[int], None]) -> None:
        """`gone` is called when no more will come."""
        super().__init__(outlet)
        self._outlet, self._number, self._parts, self._gone = outlet, added.number, added.parts, gone

    def look(self) -> None:
        """Called in the thread that sends."""
        number = self._number
        try:
            pieces = self.additions(self._parts)
        except Exception as error:
            self._gone(number)
            self.follow(())  # those that went on were let go, which is no news
            self._outlet.send(failure(number, error))
            return
        self._outlet.add([Addition(number, p.prompt, p.index, p.ids, p.log_probs, p.tops, p.finish) for p in pieces])
        if self.ended:
            self._gone(number)


class EngineHost:
    """Does what messages ask for."""

    def __init__(self, backend: LocalBackend, outlet: Outlet) -> None:
        self._backend, self._outlet = backend, outlet
        self._engine = cast(Inbox, backend.engine)
        self._feeds: dict[int, Feed] = {}  # by the number of the message that asked for them
        self._read: dict[int, PreTrainedModel] = {}  # weights beside those in use, by the number of their message
        self._work: queue.SimpleQueue[Read | Use | Forget] = queue.SimpleQueue()
        threading.Thread(target=self._update, name="whet-weights", daemon=True).start()

    def take(self, message: object) -> None:
        """Do what a message asks for; what is about weights takes long, and is done in another thread in its turn."""
        if isinstance(message, Add):
            self._add(message)
        elif isinstance(message, Drop):
            self._drop(message.number)
        elif isinstance(message, Read | Use | Forget):
            self._work.put(message)
        else:
            raise TypeError(f"no message of a server: {type(message).__name__}")

    def _add(self, added: Add) -> None:
        feed = self._feeds[added.number] = Feed(self._outlet, added, self._drop)
        try:
            feed.ask(self._engine, added.prompts, added.params, added.sample_ids)
        except Exception as error:
            self._drop(added.number)
            self._outlet.send(failure(added.number, error))

    def _drop(self, number: int) -> None:
        """Write no more of the responses to a message; called in any thread."""
        if (feed := self._feeds.pop(number, None)) is not None:
            self._engine.leave(feed.requests)

    def _update(self) -> None:
        while True:
            message = self._work.get()
            if isinstance(message, Forget):
                self._read.pop(message.read, None)
                continue
            error: tuple[str | None, bool] = None, False
            try:
                if isinstance(message, Read):
                    self._read[message.number] = self._backend.read(message.folder)
                else:
                    self._backend.replace(self._read[message.read], message.version)
            except Exception as cause:
                error = told(cause)
            self._outlet.send(Done(message.number, self._backend.version, *error))


def failure(number: int, error: Exception) -> Failed:
    """Return the message that ends responses by an error."""
    return Failed(number, *told(error))


def told(error: Exception) -> tuple[str, bool]:
    """Return an error's text, and whether it is for the user; others are printed where they happened."""
    if not isinstance(error, UserError):
        sys.excepthook(type(error), error, error.__traceback__)
    return str(error) or type(error).__name__, isinstance(error, UserError)
