"""Checks of `worker.reward.*`: one reward, and a server's address."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from whet.config.checks.run import Check
from whet.config.schema import Config


def _one_reward(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    given = {"reward_function": reward.reward_function, "combine": reward.combine, "url": reward.url}
    named = [f"worker.reward.{name}" for name, value in given.items() if value]
    if len(named) > 1:
        yield f"{' and '.join(named)} are set, but one reward scores the samples: keep one of them"
    if reward.url and reward.reward_function_kwargs:
        yield "worker.reward.reward_function_kwargs: the server of worker.reward.url takes no options; leave them out"


def _address(config: Config) -> Iterator[str]:
    url = config.worker.reward.url
    if url is None:
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:  # a port that is no number
        good = False
    if not good or " " in url:
        yield f"worker.reward.url={url}: write it as http://host:port/path"
    elif parts.username or parts.password:
        yield "worker.reward.url holds a user or password: set the variable of worker.reward.remote.token_env instead"


def _manager(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    batch = reward.manager == "batch"
    if reward.manager and reward.reward_type and batch != (reward.reward_type == "batch"):
        yield (
            f"worker.reward.manager={reward.manager} and worker.reward.reward_type={reward.reward_type} contradict "
            "each other: keep one of them"
        )


REWARD_CHECKS: tuple[Check, ...] = (_one_reward, _address, _manager)
