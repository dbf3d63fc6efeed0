"""Config checks shared by engines behind an address."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.schema import Config

KEYS = frozenset({"server_address"})
REQUESTS = 256  # at once, where worker.rollout.max_num_seqs leaves it open


def address_problems(config: Config) -> Iterator[str]:
    """Yield a sentence if the address of the server is missing."""
    rollout = config.worker.rollout
    if rollout.server_address is None:
        name = f"worker.rollout.name={rollout.name}"
        yield f"worker.rollout.server_address is not set, but {name} is a server: name it as http://host:port"


def check_answers(config: Config) -> None:
    """Raise a `UserError` unless a server with OpenAI's completions is up at the address."""
    from whet.rollout.engines.server.check import check_server
    from whet.rollout.engines.server.client import server_token

    check_server(config.worker.rollout.server_address or "", server_token())
