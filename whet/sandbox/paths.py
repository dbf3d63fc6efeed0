"""Files of the host that programs may read: the interpreter, libraries, compilers, and a few devices.

No other path is visible (namespaces) or can be opened (Landlock). Everything here is read-only.
"""

from __future__ import annotations

import os
import sys

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
READ_DEVICES = ("/dev/random", "/dev/urandom")
WRITE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
BOX = "/box"  # the private directory where there is a mount namespace


def links() -> dict[str, str]:
    """Return top-level links such as /bin -> usr/bin, with their targets."""
    return {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}


def readable(packages: list[str]) -> list[str]:
    """Return folders and files that programs may read, none of them below another.

    `packages` are folders of installed Python packages.
    """
    base = sys.base_prefix
    library = os.path.dirname(os.__file__)
    wanted = [path for path in SYSTEM if not os.path.islink(path)]
    wanted += [f"{base}/bin", f"{base}/lib", library, *packages, *SETTINGS]
    found = sorted({os.path.realpath(path) for path in wanted if os.path.exists(path)} - {"/"})
    chosen: list[str] = []
    for path in found:
        if not any(path.startswith(f"{above}/") for above in chosen):
            chosen.append(path)
    return chosen
