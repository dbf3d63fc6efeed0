"""One environment of one sample: made, reset, stepped and closed, each call within its time."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from whet.envs.host import EnvHost, OverrunError, is_async
from whet.envs.observations import Answer, BadResultError, Observed, read_answer, read_observation
from whet.envs.protocol import Action, Env, EnvFactory
from whet.types import Prompt

RAISED, TIMEOUT, BAD_RESULT = FAILURES = ("raised", "timeout", "bad result")


class EnvFailure(Exception):  # noqa: N818
    """An environment failed; the message says in which call and why."""

    def __init__(self, kind: str, place: str, detail: str) -> None:
        super().__init__(f"{place} {detail}")
        self.kind, self.place, self.detail = kind, place, detail


@dataclass(slots=True)
class Opened:
    """State of an environment after `reset`."""

    observed: Observed | None
    tools: list[dict[str, Any]] | None


class EnvSession:
    """An environment from its constructor to `close`. Methods raise `EnvFailure` for whatever it does wrong."""

    def __init__(self, factory: EnvFactory, host: EnvHost, seconds: float) -> None:
        self._factory, self._host, self._seconds = factory, host, seconds
        self._env: Env | None = None
        self._role = "user"

    async def open(self, prompt: Prompt, seed: int) -> Opened:
        """Make the environment and reset it for a row, of which it is given a copy."""
        make = self._make if self._makes_in_loop() else self._factory
        self._env = await self._call("the constructor", make)
        if not callable(getattr(self._env, "reset", None)) or not callable(getattr(self._env, "step", None)):
            raise EnvFailure(BAD_RESULT, "the constructor", f"gave a {type(self._env).__name__} without reset and step")
        self._role = str(getattr(self._env, "role", None) or "user")
        own = replace(
            prompt, ids=list(prompt.ids), extra=dict(prompt.extra), messages=[dict(m) for m in prompt.messages]
        )
        reset: Callable[..., Any] = self._env.reset
        value = await self._call("reset", partial(reset, seed=seed) if takes_seed(reset) else reset, own)
        with _naming("reset"):
            return Opened(read_observation(value, self._role), self._tools())

    async def step(self, action: Action) -> Answer:
        """Give the environment a turn of the policy."""
        assert self._env is not None
        place = f"step of turn {action.turn}"
        value = await self._call(place, self._env.step, action)
        with _naming(place):
            return read_answer(value, self._role)

    async def close(self) -> None:
        """Close the environment and wait for it."""
        env, self._env = self._env, None
        if env is not None and callable(getattr(env, "close", None)):
            await self._call("close", env.close)  # type: ignore[attr-defined]

    def abandon(self) -> None:
        """Close the environment without waiting."""
        env, self._env = self._env, None
        if env is not None and callable(getattr(env, "close", None)):
            self._host.begin(env.close)  # type: ignore[attr-defined]

    def _makes_in_loop(self) -> bool:
        """True for a class with an async `reset`: its constructor may want a running event loop."""
        made = getattr(self._factory, "func", self._factory)
        return is_async(getattr(made, "reset", _nothing))

    async def _make(self) -> Env:
        return self._factory()

    def _tools(self) -> list[dict[str, Any]] | None:
        tools = getattr(self._env, "tools", None)
        if not tools:
            return None
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise BadResultError("the attribute tools must be a list of function schemas")
        return tools

    async def _call(self, place: str, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return await self._host.call(function, *given, seconds=self._seconds)
        except OverrunError as error:
            where = f" ({error})" if str(error) else ""
            raise EnvFailure(TIMEOUT, place, f"did not finish within {self._seconds:g} s{where}") from None
        except Exception as error:
            raise EnvFailure(RAISED, place, f"raised {described(error)}") from error
        except BaseException as error:
            if type(error).__name__ == "CancelledError" and type(error).__module__.startswith("asyncio"):
                raise
            raise EnvFailure(RAISED, place, f"raised {described(error)}") from error


class _naming:  # noqa: N801
    """Turns what reading a result raises into the failure of a call."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BadResultError):
            raise EnvFailure(BAD_RESULT, self._place, f"returned a wrong value: {error}") from None
        if isinstance(error, Exception):  # objects of others run code of theirs when they are looked at
            raise EnvFailure(BAD_RESULT, self._place, f"returned what cannot be read: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return type, text and place of an error, in one line."""
    text = traceback.format_exception_only(error)[-1].strip()[:500]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def takes_seed(reset: Callable[..., Any]) -> bool:
    """Return True if `reset` has a parameter for the seed that samples of a group share."""
    try:
        return "seed" in inspect.signature(reset).parameters
    except (TypeError, ValueError):
        return False


def _nothing() -> None:
    return None
