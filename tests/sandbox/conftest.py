"""One pool for each way of confinement that this machine allows, and things of the host that programs try to reach."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whet.errors import UserError
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox

LIMITS = Limits(timeout=0.5, memory_mb=256, processes=16, output_bytes=100_000, disk_mb=16)


def _open(layers: str) -> Sandbox:
    try:
        return Sandbox(4, layers, LIMITS)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=["namespaces", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A pool with each kind of confinement."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_TEST_SECRET", "SECRET-of-the-environment")
        with _open(request.param) as pool:
            yield pool


@pytest.fixture(scope="session")
def any_sandbox() -> Iterator[Sandbox]:
    """A pool with the best confinement there is, for tests of what does not depend on it."""
    with _open("auto") as pool:
        yield pool


class Host:
    """Files, sockets and a process outside of the sandbox."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret.txt"
        self.secret.write_text("SECRET-of-a-file")
        self.secret.chmod(0o644)
        self.state = self._state()
        self.marker = folder / "marker"
        self.tcp = socket.create_server(("127.0.0.1", 0))
        abstract = f"whet-{secrets.token_hex(4)}"
        self.abstract, self.unix = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2))
        self.abstract.bind("\0" + abstract)
        self.unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        for each in (self.abstract, self.unix):
            each.listen()
        self.victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.targets: dict[str, Any] = {
            "secret": str(self.secret),
            "marker": str(self.marker),
            "folder": str(folder.parent),
            "name": folder.name,
            "port": self.tcp.getsockname()[1],
            "abstract": abstract,
            "unix": str(folder / "socket"),
            "victim": self.victim.pid,
        }

    def _state(self) -> tuple[str, int, int]:
        found = self.secret.stat()
        return self.secret.read_text(), found.st_mode, found.st_mtime_ns

    def check(self) -> None:
        """Assert that nothing of the host has changed."""
        assert self._state() == self.state
        assert not os.path.lexists(self.marker)
        status = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert status in ("S", "R", "D")

    def close(self) -> None:
        """End what was started."""
        self.victim.kill()
        self.victim.wait()
        for each in (self.tcp, self.abstract, self.unix):
            each.close()


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """Things outside that programs try to reach, in a folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="whet-host-") as folder:
        os.chmod(folder, 0o755)
        made = Host(Path(folder))
        yield made
        made.close()
