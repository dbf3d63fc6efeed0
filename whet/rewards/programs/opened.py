"""The sandbox of a reward worker: opened by the run's `sandbox.*` when the first program needs it, one for the process.

Reward functions of users may run programs in it too:

    from whet.rewards.programs.opened import sandbox

    def compute_score(response, answer):
        return float(sandbox().run(response).stdout == answer)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import cache
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from whet.errors import UserError

if TYPE_CHECKING:
    from whet.config.schema.sandbox import SandboxConfig
    from whet.sandbox.pool import Sandbox
    from whet.sandbox.remote import RemoteSandbox

# Of `sandbox.*`, for processes that were not given any. Workers do not import `whet.config`.
_DEFAULTS: dict[str, Any] = {
    "timeout": 10.0,
    "memory_mb": 512,
    "processes": 32,
    "output_bytes": 1_048_576,
    "disk_mb": 64,
    "workers": 1,
    "layers": "auto",
    "url": None,
}
_MARGIN = 0.85  # fraction of a call's time in which its programs must have ended, so that the call can answer


class _State:
    """Settings of this process."""

    values: Mapping[str, Any] = _DEFAULTS
    folder: str | None = None  # removed by the worker's keeper, however the worker ends
    deadline: float | None = None  # of the current call, by the monotonic clock


def configure(values: Mapping[str, Any], folder: str | None) -> None:
    """Set `sandbox.*` of this process, and the folder for programs' files (made when it is needed)."""
    _State.values, _State.folder = _DEFAULTS | dict(values), folder


def begin_call(seconds: float) -> None:
    """Note that a call has so many seconds from now on."""
    _State.deadline = monotonic() + seconds * _MARGIN


def seconds_left() -> float:
    """Seconds that programs of the current call may still take; infinite where no call has a limit."""
    return float("inf") if _State.deadline is None else _State.deadline - monotonic()


@cache
def sandbox() -> Sandbox | RemoteSandbox:
    """Return the sandbox of this process; UserError where the system offers no confinement."""
    from whet.sandbox.opening import open_sandbox

    if _State.folder is not None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(_State.folder)
            os.chmod(_State.folder, 0o711)  # programs of a pool that root started have users of their own
    settings: Any = SimpleNamespace(**_State.values)
    return open_sandbox(settings, _State.folder)


def check_sandbox(config: SandboxConfig | None) -> None:
    """Run a program as `sandbox.*` says (None: by the defaults); UserError if none can be run."""
    from whet.config.schema.sandbox import SandboxConfig
    from whet.sandbox.opening import open_sandbox
    from whet.sandbox.remote import RemoteError

    config = config or SandboxConfig()
    try:
        with open_sandbox(config) as opened:
            result = opened.run("print(6 * 7)")
    except RemoteError as error:
        raise UserError(f"sandbox.url={config.url}: no program can be run there: {error}") from error
    if result.status != "ok" or result.stdout.strip() != "42":
        shown = (result.stderr or result.stdout).strip()[-300:]
        raise UserError(
            f"a program of one line ended with status {result.status} in the sandbox, with sandbox.timeout="
            f"{config.timeout:g} and sandbox.memory_mb={config.memory_mb}: raise its limits, or see `whet sandbox "
            f"--layers`. {shown}".rstrip()
        )
