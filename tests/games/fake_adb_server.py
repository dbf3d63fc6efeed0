"""An adb server with one device, for the real `adb` program to speak to.

It knows the calls that examples/games makes: `host:version`, features, `host:tport:serial:NAME`, and then `shell,v2:`
or `exec:` with a command line, which is cut into words as a shell would. Requests are four hexadecimal digits of length
and text; answers begin with OKAY or FAIL.
"""

from __future__ import annotations

import io
import shlex
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, ImageDraw

VERSION = 41  # of the protocol between adb and its server; another one would make adb start a server of its own
FEATURES = "shell_v2,cmd,stat_v2"
STDOUT, STDERR, EXIT = 1, 2, 3


class FakePhone:
    """A screen that shows a mark at each touch, and the ways in which it can fail."""

    def __init__(self, serial: str = "emulator-5554", size: tuple[int, int] = (108, 240)) -> None:
        self.serial, self.size = serial, size
        self.commands: list[list[str]] = []  # words of every command, in order
        self.taps: list[tuple[int, int]] = []
        self.attached = True
        self.lost_calls = 0  # calls for which the device is said not to be there
        self.black = self.garbled = self.hangs = False
        self.screenshots = self.requests = 0
        self.fail_after: int | None = None  # screenshots after which the device is gone
        self.woken = threading.Event()  # ends calls that hang

    def run(self, words: list[str]) -> tuple[bytes, bytes, int]:
        """Run a command: what it prints on both outputs, and its exit code."""
        self.commands.append(words)
        if words[:1] == ["screencap"]:
            self.screenshots += 1
            return self.picture(), b"", 0
        if words[:2] == ["wm", "size"]:
            return f"Physical size: {self.size[0]}x{self.size[1]}\n".encode(), b"", 0
        if words[:2] == ["input", "tap"]:
            self.taps.append((int(words[2]), int(words[3])))
        if words[:1] == ["am"] and "no.such.app/.Main" in words:
            return b"Error: Activity class does not exist.\n", b"", 0
        if words[:1] in (["input"], ["am"], ["monkey"]):
            return b"", b"", 0
        return b"", f"{words[0]}: inaccessible or not found\n".encode(), 127

    def picture(self) -> bytes:
        """Return the screen as PNG."""
        if self.garbled:
            return b"no picture"
        screen = Image.new("RGB", self.size, (0, 0, 0) if self.black else (90, 120, 160))
        if not self.black:
            for x, y in self.taps:
                ImageDraw.Draw(screen).ellipse((x - 4, y - 4, x + 4, y + 4), fill=(250, 250, 0))
        buffer = io.BytesIO()
        screen.save(buffer, format="PNG")
        return buffer.getvalue()


class _Handler(socketserver.BaseRequestHandler):
    """One connection of a client: requests to the server, then one to the device."""

    def handle(self) -> None:
        phone: FakePhone = self.server.phone  # type: ignore[attr-defined]
        while (request := self._request()) is not None:
            if request == "host:version":
                self._okay(f"{VERSION:04x}")
                return  # adb waits for the end of the connection
            if request.endswith(("features", "host-features")):
                self._okay(FEATURES)
                return
            if request.startswith(("host:tport:serial:", "host:transport:")):
                if not self._select(phone, request):
                    return
            elif request.startswith(("shell,v2", "exec:", "shell:")):
                self._command(phone, request)
                return
            else:
                self._fail(f"unknown request {request}")
                return

    def _select(self, phone: FakePhone, request: str) -> bool:
        serial = request.removeprefix("host:tport:serial:").removeprefix("host:transport:")
        gone = phone.fail_after is not None and phone.screenshots >= phone.fail_after
        if serial != phone.serial or not phone.attached or gone or phone.lost_calls > 0:
            phone.lost_calls -= 1
            self._fail(f"device '{serial}' not found")
            return False
        self.request.sendall(b"OKAY" + (struct.pack("<Q", 7) if "tport" in request else b""))
        return True

    def _command(self, phone: FakePhone, request: str) -> None:
        self.request.sendall(b"OKAY")
        phone.requests += 1
        if phone.hangs:
            phone.woken.wait(30)
            return
        kind, _, line = request.partition(":")
        printed, complained, code = phone.run(shlex.split(line))
        if not kind.startswith("shell,v2"):
            self.request.sendall(printed + complained)
            return
        for stream, content in ((STDOUT, printed), (STDERR, complained), (EXIT, bytes([code]))):
            if content:
                self.request.sendall(struct.pack("<BI", stream, len(content)) + content)

    def _request(self) -> str | None:
        length = self._read(4)
        return None if length is None else (self._read(int(length, 16)) or b"").decode()

    def _read(self, count: int) -> bytes | None:
        content = b""
        while len(content) < count:
            more = self.request.recv(count - len(content))
            if not more:
                return None
            content += more
        return content

    def _okay(self, text: str) -> None:
        self.request.sendall(b"OKAY" + f"{len(text):04x}{text}".encode())

    def _fail(self, text: str) -> None:
        self.request.sendall(b"FAIL" + f"{len(text):04x}{text}".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that were killed."""


@contextmanager
def adb_server(phone: FakePhone) -> Iterator[int]:
    """Serve a phone on a free port of this machine."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.phone = phone  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            phone.woken.set()
            server.shutdown()
            thread.join()


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
