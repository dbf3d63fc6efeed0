"""The trainer's end of the control channel to vLLM's loop, in a child process or in a thread of this one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.rollout.vllm.child.whet_vllm_wire import receive, send
from whet.rollout.vllm.process import end_group, ending, last_words
from whet.rollout.vllm.sender import WeightSender
from whet.rollout.vllm.settings import CHILD, Settings


class Channel:
    """Requests out, replies in; a thread reads and gives each reply to whoever waits for it."""

    def __init__(self, connection: socket.socket, arguments: dict[str, Any], obituary: Callable[[str], str]) -> None:
        """`obituary` words the end of the other side, given what it said itself."""
        self._connection, self._obituary = connection, obituary
        self._lock = threading.Lock()  # of who waits for what
        self._sending = threading.Lock()
        self._waiting: dict[str, Future[dict[str, Any]]] = {}
        self._gone: str | None = None
        started = self._expect("start")
        threading.Thread(target=self._read, name="whet-vllm", daemon=True).start()
        self._send({"arguments": arguments})
        started.result()

    @property
    def pending(self) -> int:
        """Requests that are being written."""
        return len(self._waiting)

    def submit(self, key: str, prompt: list[int], params: dict[str, Any], version: int) -> Future[dict[str, Any]]:
        """Queue one sample."""
        future = self._expect(key)
        self._send({"do": "add", "id": key, "prompt": prompt, "params": params, "version": version})
        return future

    def abort(self, keys: list[str]) -> None:
        """Let samples go that nobody waits for any more."""
        with self._lock:
            for key in keys:
                self._waiting.pop(key, None)
        self._send({"do": "abort", "ids": keys})

    def load(self, sender: WeightSender) -> list[dict[str, str]]:
        """Have every worker take the weights on offer; what each says it received."""
        return self._ask("load", {**sender.offer(), "version": sender.version})["received"]

    def sleep(self) -> None:
        """Have vLLM give its memory back until the next request."""
        self._ask("sleep", {})

    def close(self) -> None:
        """Say goodbye; the other side ends."""
        self._obituary = lambda _: "it was closed"
        self._send({"do": "close"})

    def _ask(self, what: str, more: dict[str, Any]) -> dict[str, Any]:
        future = self._expect(what)
        self._send({"do": what, **more})
        return future.result()

    def _expect(self, key: str) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        future.set_running_or_notify_cancel()  # who gives up aborts; the reading thread alone settles it
        with self._lock:
            if self._gone is not None:
                raise UserError(self._gone)
            self._waiting[key] = future
        return future

    def _send(self, message: dict[str, Any]) -> None:
        try:
            with self._sending:
                send(self._connection, message)
        except OSError:  # the reading thread is about to say why, to everyone
            return

    def _read(self) -> None:
        said = ""
        try:
            while True:
                message, _ = receive(self._connection)
                if "failed" in message:
                    said = message["failed"]
                    continue
                with self._lock:
                    future = self._waiting.pop(message.get("id") or message["did"], None)
                if future is not None:
                    future.set_result(message)
        except (EOFError, OSError, ValueError):
            self._die(self._obituary(said))
        finally:
            self._connection.close()

    def _die(self, words: str) -> None:
        with self._lock:
            self._gone = words
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(UserError(words))


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
        try:
            super().__init__(ours, arguments, self._ended)
        except BaseException:
            self._end(grace=0.0)  # one that is still starting does not listen
            raise

    def close(self) -> None:
        """End the child and everything it started; the log of one that died stays."""
        self._end(grace=10.0)

    def _end(self, grace: float) -> None:
        died = self._gone is not None
        super().close()
        end_group(self.process, grace)
        if not self._keep_log and not died:
            self._log.unlink(missing_ok=True)

    def _ended(self, said: str) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)  # the socket closes a moment before the process is gone
        what = f"worker.rollout.name=vllm: the process that runs vLLM (pid {self.process.pid}) {ending(self.process)}"
        if said:
            return f"{what}: {said}\nIts output is in {self._log}"
        return f"{what}. Its last words, from {self._log}:\n{last_words(self._log)}"


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

    def close(self) -> None:
        """End vLLM's loop."""
        super().close()
        self._thread.join(timeout=60)
