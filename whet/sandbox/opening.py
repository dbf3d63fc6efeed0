"""Open the sandbox of the keys `sandbox.*`, here or on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox
from whet.sandbox.remote import RemoteSandbox

if TYPE_CHECKING:
    from whet.config.schema.sandbox import SandboxConfig


def open_sandbox(config: SandboxConfig, folder: str | None = None) -> Sandbox | RemoteSandbox:
    """Return the sandbox that a config asks for; UserError if programs cannot be confined here.

    `folder` holds the files of programs; by default a new one in memory or in the temporary folder.
    """
    limits = Limits(config.timeout, config.memory_mb, config.processes, config.output_bytes, config.disk_mb)
    if config.url is not None:
        return RemoteSandbox(config.url, limits)
    return Sandbox(config.workers, config.layers, limits, folder)
