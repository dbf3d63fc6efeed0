"""Address of a Ray cluster that the user has started, if there is one.

Ray itself tries for minutes to reach an address where nobody listens; a run must say so at once.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from whet.errors import UserError
from whet.system import listeners, private

_REACH_SECONDS = 5.0


def running_address() -> str | None:
    """The address in RAY_ADDRESS, else that of the last `ray start` on this machine; None = start one of our own."""
    given = os.environ.get("RAY_ADDRESS")
    if given == "local":
        return None
    if given and given != "auto":
        _check(given)
        return given
    # `ray start` leaves its address here, and a crash leaves the file; in a folder where others can write, too.
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    left = (private.read_own(note) or "").strip()
    if left and _answers(left) and not _is_taken_over(left):
        return left
    if given == "auto":
        raise UserError("RAY_ADDRESS=auto: no Ray cluster runs on this machine; start one with `ray start --head`")
    return None


def _check(address: str) -> None:
    if "://" in address:
        raise UserError(
            f"RAY_ADDRESS={address}: run on a machine of the cluster and give the address that `ray start` printed, "
            "such as 10.0.0.1:6379"
        )
    if not _answers(address):
        raise UserError(
            f"RAY_ADDRESS={address}: no Ray cluster answers there; start one with `ray start --head`, or leave "
            "RAY_ADDRESS out to train on this machine alone"
        )


def _is_taken_over(address: str) -> bool:
    """True if another user's process listens on the port of this machine where a cluster of this user once was."""
    host, _, port = address.rpartition(":")
    return _is_here(host) and listeners.is_foreign(int(port))


def _is_here(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # only an address of this machine can be bound
    except OSError:
        return False
    return True


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, ValueError, OverflowError):  # nobody listens, or it is no address
        return False
    return True
