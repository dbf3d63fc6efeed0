"""Names by which clients may call the server.

A page in a browser can have its own name resolve to 127.0.0.1 (DNS rebinding) and then counts as the same origin as
this server. Such requests carry the page's name in Host; requests of pages elsewhere carry theirs in Origin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.types import Scope

from whet.config.checks.serve import is_loopback
from whet.serving.errors import ApiError

ANY = "*"
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{0,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>.+)")


class Hosts:
    """Checks Host and Origin against the address that is listened on and `serve.allowed_hosts`."""

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        self._names = {name.lower().strip("[]") for name in (host, *allowed)}
        self._any = ANY in allowed
        # A server for other machines is called by names that it cannot know, unless they are listed.
        self._any_host = self._any or (not is_loopback(host) and not allowed)

    def check(self, scope: Scope) -> ApiError | None:
        """Return the answer to a request under a name that is not allowed; None if it may pass."""
        hosts, origins = (_values(scope, name) for name in (b"host", b"origin"))
        names = [_name(each) for each in hosts]
        if len(names) > 1 or not all(name is not None and self._allows(name, self._any_host) for name in names):
            return _refusal("Host")
        for origin in origins:
            name = _origin_name(origin)
            same = self._any_host and name in names
            if not self._any and not same and (name is None or not self._allows(name, False)):
                return _refusal("Origin")
        return None

    def _allows(self, name: str, any_name: bool) -> bool:
        return any_name or is_loopback(name) or name in self._names


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _name(host: str) -> str | None:
    """The host without its port, in lower case; None if it is malformed."""
    found = _HOST.fullmatch(host.strip().lower())
    return found["name"].strip("[]").removesuffix(".") if found else None


def _origin_name(origin: str) -> str | None:
    found = _ORIGIN.fullmatch(origin.strip().lower())
    return _name(found["host"]) if found else None


def _refusal(header: str) -> ApiError:
    text = f"requests with this {header} header are not answered; serve.allowed_hosts lists the names that are"
    return ApiError(403, text, "host_not_allowed")
