"""Before anything is loaded: does the server answer?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from whet.rollout.blocking import run_blocking
from whet.rollout.engines.server.client import Client
from whet.rollout.engines.server.completions import served_model

_SECONDS = 30.0  # for a server that only has to say that it is there


def check_server(address: str, token: str | None, kind: Callable[[Client], Awaitable[object]] = served_model) -> None:
    """Raise a `UserError` unless a healthy server answers; `kind` raises one unless it is of the right kind."""
    run_blocking(_check(Client(address, token, _SECONDS), kind))


async def _check(client: Client, kind: Callable[[Client], Awaitable[object]]) -> None:
    await client.get("/health")
    await kind(client)
