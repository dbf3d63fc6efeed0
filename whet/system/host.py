"""Memory of this machine."""

from __future__ import annotations

import os


def host_memory() -> int:
    """Return the bytes of this machine's memory, or of the control group that this process runs in."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no such file, or "max"
        return total
