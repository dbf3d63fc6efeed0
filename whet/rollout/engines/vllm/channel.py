"""The trainer's end of the control channel to vLLM's loop, in a child process or in a thread of this one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.rollout.engine import EngineGoneError
from whet.rollout.engines.vllm.child.whet_vllm_wire import receive, send
from whet.rollout.engines.vllm.media import Shown
from whet.rollout.engines.vllm.sender import WeightsAtHand, WeightSender
from whet.rollout.engines.vllm.settings import CHILD, Settings
from whet.system import groups
from whet.system.processes import end_group, ending, last_output

Offer = WeightSender | WeightsAtHand
Hear = Callable[[str, dict[str, Any]], None]  # what was added to the sample of a key


@dataclass(frozen=True, slots=True)
class _Expected:
    """A reply that somebody waits for, and who wants to hear of its parts."""

    future: Future[dict[str, Any]]
    hear: Hear | None


class Channel:
    """Requests out, replies in; a thread reads and gives each reply to whoever waits for it."""

    def __init__(self, connection: socket.socket, arguments: dict[str, Any], obituary: Callable[[str], str]) -> None:
        """`obituary` words the end of the other side, given what it said itself. `wait_until_up` must follow."""
        self._connection, self._obituary = connection, obituary
        self._lock = threading.Lock()  # of who waits for what
        self._sending = threading.Lock()
        self._waiting: dict[str, _Expected] = {}
        self._gone: str | None = None
        self._started = self._expect("start")
        threading.Thread(target=self._read, name="whet-vllm", daemon=True).start()
        self._send({"arguments": arguments})

    def wait_until_up(self) -> None:
        """Return when vLLM can be asked for samples; UserError with its words when it cannot."""
        self._started.result()

    @property
    def pending(self) -> int:
        """Requests that are being written."""
        return len(self._waiting)

    @property
    def gone(self) -> str | None:
        """Return how the other side ended, once it has."""
        return self._gone

    def submit(
        self,
        prompts: list[list[int]],
        requests: list[tuple[str, int, int]],
        params: dict[str, Any],
        version: int,
        shown: dict[int, Shown],
        hear: Hear | None = None,
    ) -> list[Future[dict[str, Any]]]:
        """Queue samples: the key, the prompt and the seed of each; `shown` is what some prompts have besides text.

        Prompts of text go together; one that shows something has a frame of its own, once for all of its samples.
        Where somebody wants to `hear` of a sample while it is written, its future holds the last of it only.
        """
        futures = [self._expect(key, hear) for key, _, _ in requests]
        common = {"do": "add", "params": params, "version": version, "stream": hear is not None}
        if text := [request for request in requests if request[1] not in shown]:
            self._send(common | {"prompts": prompts, "requests": text})
        for which, media in shown.items():
            mine = [(key, 0, seed) for key, about, seed in requests if about == which]
            header, body = media.frame()
            self._send(common | {"prompts": [prompts[which]], "requests": mine, "shown": header}, body)
        return futures

    def abort(self, keys: list[str], version: int | None = None) -> None:
        """Let samples go; who waits for one gets an empty one of this version, if there is any."""
        with self._lock:
            left = [expected for key in keys if (expected := self._waiting.pop(key, None)) is not None]
        self._send({"do": "abort", "ids": keys})
        for expected in left if version is not None else []:
            expected.future.set_result({"ids": [], "log_probs": [], "finish": "abort", "version": version})

    def load(self, offer: Offer) -> Future[dict[str, Any]]:
        """Have every worker take the weights on offer; `received` of the answer is what each says it has."""
        return self._ask("load", {**offer.offer(), "version": offer.version})

    def sleep(self, level: int) -> Future[dict[str, Any]]:
        """Have vLLM give its memory back; `level` of the answer is how far it went."""
        return self._ask("sleep", {"level": level})

    def close(self) -> None:
        """Say goodbye; the other side ends."""
        self._obituary = lambda _: "it was closed"
        self._send({"do": "close"})

    def _ask(self, what: str, more: dict[str, Any]) -> Future[dict[str, Any]]:
        future = self._expect(what)
        self._send({"do": what, **more})
        return future

    def _expect(self, key: str, hear: Hear | None = None) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        future.set_running_or_notify_cancel()  # who gives up aborts; the reading thread alone settles it
        with self._lock:
            if self._gone is not None:
                raise EngineGoneError(self._gone)
            self._waiting[key] = _Expected(future, hear)
        return future

    def _send(self, message: dict[str, Any], body: memoryview | None = None) -> None:
        try:
            with self._sending:
                send(self._connection, message, body)
        except OSError:  # the reading thread is about to say why, to everyone
            return

    def _read(self) -> None:
        said = ""
        try:
            while True:
                message, body = receive(self._connection)
                if "failed" in message:
                    said = message["failed"]
                elif "written" in message:
                    for key, reply in _samples(message["written"], body):
                        self._settle(key, reply) if reply["finish"] else self._tell(key, reply)
                elif "refused" in message:
                    for key, words in message["refused"].items():
                        self._settle(key, {"error": words})
                else:
                    self._settle(message["did"], message)
        except (EOFError, OSError, ValueError):
            self._die(self._obituary(said))
        finally:
            self._connection.close()

    def _settle(self, key: str, reply: dict[str, Any]) -> None:
        with self._lock:
            expected = self._waiting.pop(key, None)
        if expected is not None:
            expected.future.set_result(reply)

    def _tell(self, key: str, part: dict[str, Any]) -> None:
        expected = self._waiting.get(key)
        if expected is not None and expected.hear is not None:
            expected.hear(key, part)

    def _die(self, words: str) -> None:
        with self._lock:
            self._gone = words
            waiting, self._waiting = list(self._waiting.values()), {}
        for expected in waiting:
            expected.future.set_exception(EngineGoneError(words))


def _samples(table: list[list[Any]], body: bytearray) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read samples from a frame: all token ids, then all log-probs."""
    ids, log_probs = array("i"), array("f")
    ids.frombytes(memoryview(body)[: len(body) // 2])
    log_probs.frombytes(memoryview(body)[len(body) // 2 :])
    at = 0
    for key, count, finish, version in table:
        here = slice(at, at + count)
        at += count
        yield (
            key,
            {"ids": ids[here].tolist(), "log_probs": log_probs[here].tolist(), "finish": finish, "version": version},
        )


class ProcessChannel(Channel):
    """vLLM in a child process; its output goes to a file."""

    def __init__(self, settings: Settings, arguments: dict[str, Any], log: Path | None = None) -> None:
        ours, theirs = socket.socketpair()
        self._log, self._keep_log = log or _temporary_log(), log is not None
        with theirs, open(self._log, "ab") as sink:
            self.process = subprocess.Popen(
                [settings.interpreter, str(CHILD / "whet_vllm_child.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=(theirs.fileno(),),
                env=settings.environment(),
                start_new_session=True,  # Ctrl-C reaches the trainer only; ending the group reaches vLLM's workers
            )
        self._leader = groups.leader_of(self.process.pid)
        super().__init__(ours, arguments, self._ended)

    def close(self) -> None:
        """End the child and everything it started; the log of one that died stays."""
        died = self._gone is not None
        super().close()
        grace = 10.0 if self._started.done() else 0.0  # one that still starts does not listen
        end_group(self.process, self._leader, grace)
        if not self._keep_log and not died:
            self._log.unlink(missing_ok=True)

    def _ended(self, said: str) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)  # the socket closes a moment before the process is gone
        what = f"worker.rollout.name=vllm: the process that runs vLLM (pid {self.process.pid}) {ending(self.process)}"
        if said:
            return f"{what}: {said}\nIts output is in {self._log}"
        return f"{what}. Its last words, from {self._log}:\n{last_output(self._log)}"


def _temporary_log() -> Path:
    descriptor, path = tempfile.mkstemp(prefix="whet-vllm-", suffix=".log")
    os.close(descriptor)
    return Path(path)


class InlineChannel(Channel):
    """vLLM in a thread of this process."""

    def __init__(self, settings: Settings, arguments: dict[str, Any]) -> None:
        os.environ.update({k: v for k, v in settings.environment().items() if k.startswith("VLLM_")})
        if str(CHILD) not in sys.path:
            sys.path.append(str(CHILD))  # vLLM imports the worker extension by its name
        from whet_vllm_host import serve

        ours, theirs = socket.socketpair()
        self._thread = threading.Thread(target=serve, args=(theirs, lambda: None), name="vllm", daemon=True)
        self._thread.start()
        super().__init__(ours, arguments, lambda said: f"worker.rollout.mode=inline: vLLM ended: {said}")

    def load(self, offer: Offer) -> Future[dict[str, Any]]:
        """Load as in another process; local weights are read in place."""
        if isinstance(offer, WeightsAtHand):
            from whet_vllm_extension import AT_HAND

            AT_HAND.clear()
            AT_HAND[offer.token] = offer.read
        return super().load(offer)

    def close(self) -> None:
        """End vLLM's loop."""
        super().close()
        self._thread.join(timeout=60)
