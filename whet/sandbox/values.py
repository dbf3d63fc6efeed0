"""Plain values as JSON, between a program's process and its tests'.

Numbers, text, None and the standard containers cross by value, as their exact built-in types: what a subclass has
overridden stays behind. Anything else crosses as a reference to an object that stays in its process.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

LARGEST = 16 << 20  # bytes of a message
_LENGTH = struct.Struct("<I")
_SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}


class GoneError(BaseException):
    """The other process has ended or sent something that is no message.

    Not an Exception: a test that expects one must not take the end of a program for it.
    """


def encode(value: Any, refer: Callable[[Any], list[Any]], depth: int = 0) -> Any:
    """Return a value as JSON types; `refer` describes objects that have no plain form."""
    if depth > 200:
        raise ValueError("the value is nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = value if type(value) is int else int.__int__(value)
        return ["int", hex(number)] if abs(number) > 1 << 64 else number
    if isinstance(value, float):
        return value if type(value) is float else float.__float__(value)
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, bytes | bytearray):
        return ["bytes", base64.b64encode(bytes(value)).decode()]
    if isinstance(value, dict):
        pairs = [[encode(key, refer, depth + 1), encode(item, refer, depth + 1)] for key, item in dict.items(value)]
        return ["dict", pairs]
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return [name, [encode(item, refer, depth + 1) for item in kind.__iter__(value)]]
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), refer, depth + 1)
    return refer(value)


def decode(data: Any, resolve: Callable[[str, Any], Any]) -> Any:
    """Return the value that JSON types stand for; `resolve` makes something of references."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], str):
        raise GoneError("a message cannot be read")
    name, content = data
    if name in _SEQUENCES:
        return _SEQUENCES[name](decode(item, resolve) for item in content)
    if name == "dict":
        return {decode(key, resolve): decode(item, resolve) for key, item in content}
    if name == "int":
        return int(content, 16)
    if name == "complex":
        return complex(*content)
    if name == "bytes":
        return base64.b64decode(content)
    return resolve(name, content)


class Wire:
    """Messages over a socket. Both sides may ask while they wait for an answer."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        body = json.dumps(message).encode()
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except OSError:
            raise GoneError("the other process has ended") from None

    def receive(self) -> dict[str, Any]:
        """Wait for one message."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if size > LARGEST:
            raise GoneError("a message is too large")
        try:
            message = json.loads(self._read(size))
        except ValueError:
            raise GoneError("a message is no JSON") from None
        if not isinstance(message, dict):
            raise GoneError("a message is no object")
        return message

    def _read(self, size: int) -> bytes:
        pieces = []
        while size:
            try:
                piece = self._socket.recv(min(size, 1 << 16))
            except OSError:
                piece = b""
            if not piece:
                raise GoneError("the program has ended")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
