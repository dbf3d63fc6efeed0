"""A harness is started for one sample: a Python function, or a command line in a process group of its own."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import selectors
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Protocol

from whet.envs.harness.scores import Scores, printed_scores, read_scores
from whet.envs.harness.watch import Watch
from whet.envs.host import EnvHost, OverrunError
from whet.envs.observations import BadResultError
from whet.envs.session import BAD_RESULT, RAISED, TIMEOUT, EnvFailure, described
from whet.errors import UserError
from whet.system import groups

PLACE = "agent"
GIVEN = ("base_url", "api_key", "row")
_TAIL = 65536  # bytes of a program's output that are kept
_LONGEST_ROW = 100_000  # bytes of WHET_ROW: the system refuses longer variables
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Started:
    """Everything that a harness is told."""

    base_url: str
    api_key: str
    row: dict[str, Any]

    @property
    def session_url(self) -> str:
        """Base URL that names the session itself, for programs that have no key to give."""
        return f"{self.base_url.removesuffix('/v1')}/sessions/{self.api_key}/v1"


class Program(Protocol):
    """A harness, run once for each sample."""

    async def run(self, host: EnvHost, started: Started, seconds: float) -> Scores:
        """Run to the end; `EnvFailure` for whatever goes wrong. Nothing of it runs afterwards, if it can be ended."""
        ...

    def close(self) -> None:
        """End what is left of it with the run."""
        ...


class FunctionProgram:
    """A function `run(base_url, api_key, row)`, async or not; one without `api_key` has the session in its URL."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._names = function, taken_names(function)

    def close(self) -> None:
        """Do nothing: threads that hang are left behind by the host."""

    async def run(self, host: EnvHost, started: Started, seconds: float) -> Scores:
        """Call the function, in a thread or in the event loop of environments."""
        given = {"base_url": started.base_url, "api_key": started.api_key, "row": dict(started.row)}
        if self._names is not None and "api_key" not in self._names:
            given["base_url"] = started.session_url
        by_place = list(given.values()) if self._names is None else []
        by_name = {name: given[name] for name in self._names or ()}
        try:
            value = await host.call(partial(self._function, *by_place, **by_name), seconds=seconds)
            return read_scores(value)
        except OverrunError as error:
            raise EnvFailure(TIMEOUT, PLACE, _late(seconds, str(error))) from None
        except BadResultError as error:
            raise EnvFailure(BAD_RESULT, PLACE, f"returned a wrong value: {error}") from None
        except Exception as error:
            raise EnvFailure(RAISED, PLACE, f"raised {described(error)}") from error
        except BaseException as error:
            if type(error).__name__ == "CancelledError" and type(error).__module__.startswith("asyncio"):
                raise
            raise EnvFailure(RAISED, PLACE, f"raised {described(error)}") from error


def taken_names(function: Callable[..., Any]) -> list[str] | None:
    """Return which of base_url, api_key and row a function takes by name; None if it takes all three by place.

    `TypeError` for a function that can be called in neither way.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a function in C
        return None
    own = [each for each in signature.parameters.values() if each.kind is not each.POSITIONAL_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in own):
        names = list(GIVEN)
    else:
        names = [each.name for each in own if each.name in GIVEN]
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError:
        names = []
    if names:
        return names
    signature.bind(*GIVEN)
    return None


class CommandProgram:
    """A command line; the last line that it prints may be the reward."""

    def __init__(self, command: str, key: str) -> None:
        """`key` is the config's, for messages; `UserError` for a command that cannot be started."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UserError(f"{key}={command}: cannot be read as a command line: {error}") from None
        if not self._words:
            raise UserError(f"{key} is empty: it must be a command line, such as python my_agent.py")
        if shutil.which(self._words[0]) is None:
            raise UserError(f"{key}={command}: there is no program {self._words[0]}")
        self._watch = Watch()

    def close(self) -> None:
        """End what is left of commands."""
        self._watch.close()

    async def run(self, host: EnvHost, started: Started, seconds: float) -> Scores:
        """Start the command, wait for it in a thread, and end its process group."""
        host.mark()
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(started),
                start_new_session=True,
            )
        except OSError as error:
            raise EnvFailure(RAISED, PLACE, f"could not be started: {error.strerror or error}") from None
        leader = groups.leader_of(process.pid)
        self._watch.add(leader)
        try:
            said, complained = await host.call(lambda: _ended(process, leader), seconds=seconds)
        except OverrunError:
            raise EnvFailure(TIMEOUT, PLACE, _late(seconds)) from None
        finally:
            groups.end(leader)
            self._watch.remove(leader)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DRAIN_SECONDS)  # killed: it takes a moment at most
        if process.returncode != 0:
            raise EnvFailure(RAISED, PLACE, _exit(process.returncode, complained))
        try:
            return printed_scores(said)
        except BadResultError as error:
            raise EnvFailure(BAD_RESULT, PLACE, f"printed a wrong last line: {error}") from None


def _environment(started: Started) -> dict[str, str]:
    """Return the environment of a command; proxies must not stand between it and the loopback interface."""
    own = {
        "OPENAI_BASE_URL": started.base_url,
        "OPENAI_API_KEY": started.api_key,
        "ANTHROPIC_BASE_URL": started.base_url.removesuffix("/v1"),  # its clients add /v1 themselves
        "ANTHROPIC_API_KEY": started.api_key,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",  # which would send traces with this key to OpenAI
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"])),
        "no_proxy": ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1"])),
    }
    row = json.dumps(started.row, default=str)
    if len(row) <= _LONGEST_ROW:
        own["WHET_ROW"] = row
    return {**os.environ, **own}


def _ended(process: subprocess.Popen[bytes], leader: groups.Leader) -> tuple[str, str]:
    """Read a process's output until it has ended; return the last of both streams. Blocks."""
    assert process.stdout is not None
    assert process.stderr is not None
    tails: dict[IO[bytes], bytes] = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector, process.stdout, process.stderr:
        for stream in tails:
            selector.register(stream, selectors.EVENT_READ)
        until = None  # set once the process has ended: others of its group may hold the streams open
        while selector.get_map() and (until is None or time.monotonic() < until):
            if until is None and process.poll() is not None:
                groups.end(leader)
                until = time.monotonic() + _DRAIN_SECONDS
            for ready, _ in selector.select(0.05):
                stream = ready.fileobj  # type: ignore[assignment]
                piece = os.read(ready.fd, _TAIL)
                tails[stream] = (tails[stream] + piece)[-_TAIL:]
                if not piece:
                    selector.unregister(stream)
        process.wait()
    return tails[process.stdout].decode("utf-8", "replace"), tails[process.stderr].decode("utf-8", "replace")


def _exit(code: int, complained: str) -> str:
    how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
    said = complaint(complained)
    return f"{how}: {said[:300]}" if said else how


def complaint(text: str) -> str:
    """Return the exception of the last traceback, which notes may follow, or else the last line."""
    lines = text.strip().splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    raised = [line for line in lines[frames[-1] :] if line[:1].strip()] if frames else []
    return (raised or lines[-1:] or [""])[0].strip()


def _late(seconds: float, where: str = "") -> str:
    return f"did not finish within {seconds:g} s" + (f" ({where})" if where else "")
