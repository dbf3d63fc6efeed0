"""Messages between trainer and worker: a length, then that many bytes.

Calls are pickled by the trainer. Replies have a binary form of their own, because the worker must write them with
nothing that the user's code can replace (`json.dumps = ...`), and the trainer must be able to read whatever arrives:
numbers and short texts, every length checked. A reply repeats the random id of its call and the pid of the worker, so
that one of another call or of a forked process is never taken for the one that is awaited.
"""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass, field

LENGTH = struct.Struct("!I")
CALL_ID_BYTES = 16
HELLO_LIMIT = 1 << 16  # bytes
RESULT_LIMIT = 1 << 17  # bytes of one sample's result: MAX_SCORES names of MAX_NAME characters, four bytes each
TEXT_LIMIT = 1 << 15  # bytes
# Between trainer and keeper:
WHERE_SIGNAL = signal.SIGUSR1  # asks the worker to write where it is to its trace pipe
STATUS = struct.Struct("!i")  # the worker's wait status
END_SECONDS = 2.0  # for the descendants to disappear after SIGKILL

_HEAD = struct.Struct("!4s16sIBB")
_MAGIC = b"whet"
_COUNT = struct.Struct("!I")
_SCORE = struct.Struct("!d")
_NO_SCORES = 0xFFFFFFFF

ASKED = ("images", "videos", "turns")  # what a function may ask for besides the row
HELLO, REFUSED, RESULTS, BAD, RAISED = range(5)
LAST, BUSY = 1, 2  # flags: the worker ends after this reply; calls have left threads or processes behind
_FLAGS = LAST | BUSY

Result = dict[str, float] | str  # the scores of a sample, or why there are none


class WireError(Exception):
    """Bytes that are no reply, or not the one that is awaited."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker says.

    HELLO: `batch` and `wanted`, what the function asks for besides the row; REFUSED: `text`, what is wrong with the
    function; RESULTS: `results`; BAD: `text`, why the call gave no results; RAISED: `text`, the traceback, and `cause`.
    """

    kind: int
    text: str = ""
    cause: str = ""
    batch: bool = False
    wanted: frozenset[str] = frozenset()
    results: list[Result] = field(default_factory=list)
    flags: int = 0


def encode_reply(reply: Reply, call: bytes, pid: int) -> bytes:
    """The reply as a message, its length included."""
    parts = [_HEAD.pack(_MAGIC, call, pid, reply.kind, reply.flags)]
    if reply.kind == HELLO:
        asked = sum(2 << i for i, name in enumerate(ASKED) if name in reply.wanted)
        parts.append(bytes([asked | reply.batch]))
    elif reply.kind == RESULTS:
        parts.append(_COUNT.pack(len(reply.results)))
        for result in reply.results:
            if isinstance(result, str):
                parts += [_COUNT.pack(_NO_SCORES), _text(result)]
                continue
            parts.append(_COUNT.pack(len(result)))
            for name, number in result.items():
                parts += [_text(name), _SCORE.pack(number)]
    else:
        parts += [_text(reply.text), _text(reply.cause)]
    body = b"".join(parts)
    return LENGTH.pack(len(body)) + body


def decode_reply(body: bytes, call: bytes, pid: int | None) -> tuple[Reply, int]:
    """Read a reply to this call from this process (None: from any), and the pid it names; WireError otherwise."""
    try:
        reader = _Reader(body)
        magic, replied, sender, kind, flags = reader.unpack(_HEAD)
        if magic != _MAGIC or flags & ~_FLAGS:
            raise WireError("it is no reply")
        if replied != call:
            raise WireError("it answers another call")
        if pid is not None and sender != pid:
            raise WireError(f"it comes from process {sender}, not from {pid}")
        reply = _decode_body(reader, kind, flags)
        reader.finish()
    except UnicodeDecodeError as error:
        raise WireError("it is no text") from error
    return reply, sender


def _decode_body(reader: _Reader, kind: int, flags: int) -> Reply:
    if kind == HELLO:
        (form,) = reader.take(1)
        wanted = frozenset(name for i, name in enumerate(ASKED) if form & 2 << i)
        return Reply(HELLO, batch=bool(form & 1), wanted=wanted, flags=flags)
    if kind in (REFUSED, BAD, RAISED):
        return Reply(kind, reader.text(), reader.text(), flags=flags)
    if kind != RESULTS:
        raise WireError("it is of no known kind")
    results: list[Result] = []
    for _ in range(reader.count()):
        entries = reader.count()
        if entries == _NO_SCORES:
            results.append(reader.text())
            continue
        scores: dict[str, float] = {}
        for _ in range(entries):
            name = reader.text()
            (scores[name],) = reader.unpack(_SCORE)
        if len(scores) != entries:
            raise WireError("it gives a score twice")
        results.append(scores)
    return Reply(RESULTS, results=results, flags=flags)


def printable(text: str) -> str:
    """Text of the worker's that can be shown on a terminal: no escape sequences, no carriage returns."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")[:TEXT_LIMIT]
    return _COUNT.pack(len(data)) + data


class _Reader:
    """Takes fields from bytes and refuses to read beyond them, so that no count in them is believed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise WireError("it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def unpack(self, form: struct.Struct) -> tuple:
        return form.unpack(self.take(form.size))

    def count(self) -> int:
        return self.unpack(_COUNT)[0]

    def text(self) -> str:
        size = self.count()
        if size > TEXT_LIMIT:
            raise WireError("a text in it is too long")
        return printable(self.take(size).decode("utf-8", "replace"))

    def finish(self) -> None:
        if self._at != len(self._data):
            raise WireError("it goes on after its end")
