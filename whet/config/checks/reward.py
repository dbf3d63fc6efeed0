"""Checks of `worker.reward.*`: one reward, and addresses of servers."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from whet.config.checks.run import Check
from whet.config.schema import Config
from whet.config.schema.reward import TERMS


def _one_reward(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    given = {"reward_function": reward.reward_function, "combine": reward.combine, "url": reward.url}
    named = [f"worker.reward.{name}" for name, value in given.items() if value]
    if len(named) > 1:
        yield f"{' and '.join(named)} are set, but one reward scores the samples: keep one of them"
    if not reward.combine and len(reward.terms) + len(named) > 1:
        both = [*named, *(f"worker.reward.{name}" for name in reward.terms)]
        yield f"{' and '.join(both)} are set: say by worker.reward.combine how much each counts, as in {{model: 1.0}}"
    if reward.url and reward.reward_function_kwargs:
        yield "worker.reward.reward_function_kwargs: the server of worker.reward.url takes no options; leave them out"


def _address(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    yield from address_problems("url", reward.url, "http://host:port/path", "remote.token_env")
    yield from address_problems("judge.base_url", reward.judge.base_url, "http://host:port/v1", "judge.key_env")


def address_problems(name: str, url: str | None, form: str, variable: str) -> Iterator[str]:
    """Yield a sentence if `worker.reward.NAME` is no address that a secret of the environment can be sent to."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:  # a port that is no number
        good = False
    if not good or " " in url:
        yield f"worker.reward.{name}={url}: write it as {form}"
    elif parts.username or parts.password:
        yield f"worker.reward.{name} holds a user or password: set the variable of worker.reward.{variable} instead"


def _manager(config: Config) -> Iterator[str]:
    reward = config.worker.reward
    batch = reward.manager == "batch"
    if reward.manager and reward.reward_type and batch != (reward.reward_type == "batch"):
        yield (
            f"worker.reward.manager={reward.manager} and worker.reward.reward_type={reward.reward_type} contradict "
            "each other: keep one of them"
        )


def _terms(config: Config) -> Iterator[str]:
    if config.worker.reward.terms or any(part in TERMS for part in config.worker.reward.parts):
        from whet.config.checks.reward_terms import term_problems

        yield from term_problems(config)


REWARD_CHECKS: tuple[Check, ...] = (_one_reward, _address, _manager, _terms)
