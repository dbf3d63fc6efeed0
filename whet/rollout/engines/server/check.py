"""Before anything is loaded: does the server answer, and is it the one that the config names?"""

from __future__ import annotations

from whet.errors import UserError
from whet.rollout.blocking import run_blocking
from whet.rollout.engines.server.client import KEY, Client
from whet.rollout.engines.server.completions import served_model
from whet.rollout.engines.server.sglang import served_version

_SECONDS = 30.0  # for a server that only has to say that it is there


def check_server(address: str, token: str | None, name: str) -> None:
    """UserError unless a healthy server of this kind answers at the address."""
    run_blocking(_check(Client(address, token, _SECONDS), name))


async def _check(client: Client, name: str) -> None:
    await client.get("/health")
    if name != "sglang":
        await served_model(client)
    elif await served_version(client) is None:
        raise UserError(
            f"{KEY}={client.address}: this SGLang does not say which weights it has (weight_version in /model_info); "
            "use a newer one"
        )
