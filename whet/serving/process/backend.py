"""The server's side: a `Backend` whose model and engine are in another process.

Messages are read by the event loop of whoever streams, all that have come at once: what is added to a response while
the loop is busy is one piece for its reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from whet.errors import UserError
from whet.rollout.engine import EngineGoneError, Piece, SamplingParams
from whet.serving.backend import Loading
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
from whet.system import groups
from whet.system.processes import end_group, ending
from whet.types import Prompt

# The same modules as here, whatever is in the working directory.
_BOOT = """import sys; sys.path[:] = sys.argv[2:]
from whet.serving.process.boot import main; main(int(sys.argv[1]))"""
_AT_ONCE = 1 << 20  # bytes that are read between two turns of the event loop
_GRACE = 10.0  # seconds to end after the server has let go, which takes a moment unless something is wrong
_MOMENT = 2.0


class ProcessBackend:
    """Used in one event loop; opened and closed outside of it."""

    def __init__(self, loading: Loading) -> None:
        """Start the process and wait until it can be asked; `UserError` in its words where it cannot."""
        ours, theirs = socket.socketpair()
        self._connection, self._inbound = ours, Inbound(bytearray())
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the server, which lets requests finish
            )
        self._leader = groups.leader_of(self.process.pid)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: str | None = None
        self._numbers = itertools.count()
        self._readers: dict[int, _Incoming] = {}
        self._asked: dict[int, asyncio.Future[Done]] = {}  # about weights
        try:
            self._up = self._opened(loading)
        except BaseException:
            self.close()
            raise
        self.version, self.sees, self.parameters = self._up

    def _opened(self, loading: Loading) -> Up:
        try:
            send(self._connection, Open(loading))
            first = next(messages(self._connection, self._inbound), None)
        except OSError:
            first = None
        if isinstance(first, Refused):
            raise UserError(first.text)
        if not isinstance(first, Up):
            raise EngineGoneError(self._ending())
        return first

    @property
    def failure(self) -> str | None:
        """Return how the process ended, once it has."""
        if self._gone is None and self.process.poll() is not None:
            self._gone = self._ending()
        return self._gone

    async def stream(
        self, prompts: Sequence[Prompt], params: SamplingParams, sample_ids: Sequence[int], parts: bool
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each prompt, as many at a time as have come."""
        self._attend()
        number, left = next(self._numbers), len(prompts) * params.n
        incoming = self._readers[number] = _Incoming()
        try:
            self._send(Add(number, prompts, params, sample_ids, parts))
            while left:
                for piece in await incoming.pieces():
                    left -= piece.finish is not None
                    yield piece
        finally:
            del self._readers[number]
            if left and self._gone is None and incoming.error is None:
                self._send(Drop(number))

    async def read_weights(self, folder: Path) -> int:
        """Have the process read weights beside its own; their number."""
        number = next(self._numbers)
        try:
            await self._ask(Read(number, folder))
        except asyncio.CancelledError:
            self.drop_weights(number)
            raise
        return number

    async def use_weights(self, read: int, version: int) -> None:
        """Have the process write with weights that it has read."""
        await self._ask(Use(next(self._numbers), read, version))

    def drop_weights(self, read: int) -> None:
        """Have the process let go of weights that it has read, or is reading."""
        if self._gone is None:
            self._send(Forget(read))

    def close(self) -> None:
        """End the process and all that it started."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.remove_reader, self._connection.fileno())
        self._gone = self._gone or "it was closed"
        with contextlib.suppress(OSError):  # the other side has gone
            self._connection.shutdown(socket.SHUT_RDWR)
        end_group(self.process, self._leader, _GRACE)
        self._connection.close()

    async def _ask(self, message: Read | Use) -> None:
        """Wait until the process has done it; raise what kept it from it."""
        self._attend()
        asked = self._asked[message.number] = asyncio.get_running_loop().create_future()
        try:
            self._send(message)
            done = await asked
        finally:
            del self._asked[message.number]
        if done.error is not None:
            raise UserError(done.error) if done.by_user else RuntimeError(done.error)

    def _attend(self) -> None:
        """Have the running event loop read messages."""
        if self._gone is not None:
            raise EngineGoneError(self._gone)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._connection.fileno(), self._read)

    def _send(self, message: object) -> None:
        try:
            send(self._connection, message)
        except OSError:
            self._end()
            raise EngineGoneError(self._gone or "") from None

    def _read(self) -> None:
        """Called when messages have come: take all that are there."""
        try:
            data = self._connection.recv(_AT_ONCE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        for message in self._inbound.take(data):
            self._take(message)

    def _take(self, message: object) -> None:
        if isinstance(message, Grown):
            for addition in message.additions:
                if (incoming := self._readers.get(addition.number)) is not None:
                    incoming.add(addition)
        elif isinstance(message, Failed):
            if (incoming := self._readers.get(message.number)) is not None:
                incoming.fail(UserError(message.text) if message.by_user else RuntimeError(message.text))
        elif isinstance(message, Done):
            self.version = message.version
            if (asked := self._asked.get(message.number)) is not None and not asked.done():
                asked.set_result(message)

    def _end(self) -> None:
        """Tell everyone that the process has ended."""
        if self._loop is not None:
            self._loop.remove_reader(self._connection.fileno())
        self._gone = self._gone or self._ending()
        for incoming in self._readers.values():
            incoming.fail(EngineGoneError(self._gone))
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(EngineGoneError(self._gone))

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_MOMENT)  # the socket closes before the process is gone
        return f"the process of the engine (pid {self.process.pid}) {ending(self.process)}; its output is above"


class _Incoming:
    """Additions to the responses of one stream that nobody has taken yet."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], Piece] = {}  # by prompt and index
        self._event = asyncio.Event()
        self.error: Exception | None = None

    def add(self, new: Addition) -> None:
        """Add to what waits of the same response."""
        place = new.prompt, new.sample
        held = self._pieces.get(place)
        if held is None:
            self._pieces[place] = Piece(*place, new.ids, new.log_probs, new.tops, new.finish)
        else:
            ids, log_probs, tops = held.ids + new.ids, held.log_probs + new.log_probs, held.tops + new.tops
            self._pieces[place] = Piece(*place, ids, log_probs, tops, new.finish)
        self._event.set()

    def fail(self, error: Exception) -> None:
        """Let the reader raise an error."""
        self.error = error
        self._event.set()

    async def pieces(self) -> list[Piece]:
        """Wait for additions, and take all."""
        await self._event.wait()
        self._event.clear()
        if self.error is not None:
            raise self.error
        pieces, self._pieces = list(self._pieces.values()), {}
        return pieces
