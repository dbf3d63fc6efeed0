"""Messages between the server and its engine's process: pickles with their length before them.

Both ends are whet's own, on a pair of sockets that nobody else has.

    server → engine   Open; then Add, Drop, Read, Use, Forget in any order
    engine → server   Up or Refused; then Grown, Failed, Done in any order
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from whet.rollout.engine import SamplingParams
from whet.serving.backend import Loading
from whet.types import FinishReason, Prompt

_LENGTH = struct.Struct("!Q")
_AT_ONCE = 1 << 20  # bytes


class Open(NamedTuple):
    """Load a model and open its engine."""

    loading: Loading


class Add(NamedTuple):
    """Write responses to prompts; the number names them."""

    number: int
    prompts: Sequence[Prompt]
    params: SamplingParams
    sample_ids: Sequence[int]
    parts: bool


class Drop(NamedTuple):
    """Write no more of them."""

    number: int


class Read(NamedTuple):
    """Read weights beside the ones in use."""

    number: int
    folder: Path


class Use(NamedTuple):
    """Write with weights that were read."""

    number: int
    read: int  # the number of the message that had them read
    version: int


class Forget(NamedTuple):
    """Let go of weights that were read, once they are."""

    read: int


class Up(NamedTuple):
    """The engine is open."""

    version: int
    sees: bool
    parameters: int


class Refused(NamedTuple):
    """The model cannot be served; the text is for the user."""

    text: str


class Addition(NamedTuple):
    """Tokens that were added to one response."""

    number: int
    prompt: int
    sample: int  # which of the prompt's n
    ids: list[int]
    log_probs: list[float]
    tops: list[list[tuple[int, float]]]
    finish: FinishReason | None


class Grown(NamedTuple):
    """All that was added since the last such message."""

    additions: list[Addition]


class Failed(NamedTuple):
    """No more of these responses will come; `by_user` is an error that the client made."""

    number: int
    text: str
    by_user: bool


class Done(NamedTuple):
    """A Read or Use has ended; `error` is for whoever asked for it."""

    number: int
    version: int  # of the weights in use now
    error: str | None = None
    by_user: bool = False


@dataclass
class Inbound:
    """Bytes that came, and the messages in them."""

    held: bytearray

    def take(self, data: bytes) -> Iterator[object]:
        """Add bytes; yield the messages that they complete."""
        self.held += data
        at = 0
        while len(self.held) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self.held, at)
            if len(self.held) - at - _LENGTH.size < size:
                break
            start = at + _LENGTH.size
            at = start + size
            yield pickle.loads(memoryview(self.held)[start:at])
        if at:
            del self.held[:at]


def send(connection: socket.socket, message: object) -> None:
    """Write a message; waits where the other side is behind."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def messages(connection: socket.socket, inbound: Inbound) -> Iterator[object]:
    """Yield messages as they come, until the other side has gone."""
    while data := connection.recv(_AT_ONCE):
        yield from inbound.take(data)
