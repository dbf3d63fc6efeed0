"""Connecting to Ray: the cluster that runs already, or one that is started on this machine for nobody else.

One that is started here is bound to loopback, asks for a token that only this process and its children know, and keeps
its files in a folder that nobody else can enter.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from whet.distributed.address import running_address
from whet.distributed.placement import Placement, asked
from whet.distributed.store import LOOPBACK
from whet.errors import UserError
from whet.system import private

OLDEST = (2, 52)  # the first with tokens; whet is tested with this and with 2.55, 2.56 and 2.60
_OBJECT_STORE = 2 << 30  # bytes; samples and metrics pass through it, and Ray would take a third of the memory
# Read when Ray is imported: without clusters of several machines, as on other systems than Linux, it keeps to loopback.
# `_node_ip_address` cannot say so: Ray turns 127.0.0.1 into an address that others can reach.
_SEVERAL_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def connect(placement: Placement) -> bool:
    """Connect to the cluster of RAY_ADDRESS or `ray start`, or start one on this machine; True if it was started."""
    address = running_address()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None and "ray" not in sys.modules:
        _ask_for_token()
    ray = _imported(placement, on_loopback=address is None)
    with _own_signals():
        if address is not None:
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"the Ray cluster at {address} does not take this run: {error} "
                    "(one with a token wants RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN here too; RAY_ADDRESS names "
                    "another one, RAY_ADDRESS=local starts one for the run)"
                ) from None
            return False
        cpus = max(placement.size, os.cpu_count() or 1) if placement.device != "cuda" else None
        folder = private.folder(Path(os.environ.get("RAY_TMPDIR", "/tmp"))) / "ray"
        own: dict[str, Any] = {
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
            "_temp_dir": str(folder),
        }
        with starting():
            ray.init(address="local", num_cpus=cpus, **own, **quiet)
    if ray.util.get_node_ip_address() != LOOPBACK:
        warnings.warn(
            "ray was imported before whet could bind it to loopback, and listens on all networks of this machine; set "
            f"{_SEVERAL_MACHINES}=0 and RAY_AUTH_MODE=token before it is imported",
            stacklevel=2,
        )
    return True


def starting() -> FileLock:
    """Held while a cluster starts: two that start at once may choose one port, and the second joins the first."""
    return FileLock(private.folder() / "ray.lock")


def _ask_for_token() -> None:
    """Have clusters that this process starts ask for a token: other users of this machine reach loopback too.

    Ray reads the variables when it is imported, and they stay as they are in this process. What the user chose stays.
    """
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _imported(placement: Placement, on_loopback: bool) -> Any:
    """The module, of a version that was tried."""
    with _variable(_SEVERAL_MACHINES, "0") if on_loopback else contextlib.nullcontext():
        try:
            import ray
        except ImportError:
            raise UserError(f"{asked(placement)}: several devices need Ray; pip install 'whet[ray]'") from None
    found = re.match(r"(\d+)\.(\d+)", ray.__version__)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UserError(
            f"{asked(placement)}: Ray {ray.__version__} is older than what whet works with; "
            f"pip install 'ray>={OLDEST[0]}.{OLDEST[1]}'"
        )
    return ray


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable inside, unless the user did."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the caller's SIGTERM: Ray would turn it into SystemExit, where a run finishes its step and saves."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
