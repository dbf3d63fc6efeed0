"""Users whose processes listen on a port of this machine, by Linux's /proc/net."""

from __future__ import annotations

import os
from pathlib import Path

_LISTENING = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def users_of(port: int) -> set[int] | None:
    """Ids of the users that listen on a TCP port of this machine; None where the system does not say."""
    users, known = set(), False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        known = True
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                users.add(int(fields[7]))
    return users if known else None


def is_foreign(port: int) -> bool:
    """True if a process of another user (but root) listens on this port."""
    return bool((users_of(port) or set()) - {0, os.getuid()})
