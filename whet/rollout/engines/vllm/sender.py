"""The trainer's end of a weight update: a listener that gives buckets to every worker of vLLM at once.

A worker on the trainer's own GPU is given the handle of a buffer there; any other gets the bytes over its connection.
The weights are read once, whatever the number of workers. Who connects must know a token that only the control channel
carries.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whet.rollout.engine import Weights
from whet.rollout.engines.vllm.child.whet_vllm_share import device_name, share
from whet.rollout.engines.vllm.child.whet_vllm_wire import buckets, checksum, fill, receive_note, send
from whet.rollout.engines.vllm.doorway import Doorway

BUCKET_BYTES = 1 << 28
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes an element
_AHEAD = 2  # buckets that a worker may be behind, and buffers on the GPU


@dataclass(slots=True)
class _Worker:
    """One connection, and whether what is at its other end sees this GPU's memory."""

    connection: socket.socket
    device: str
    sees: bool | None = None  # not known until tried


class WeightSender:
    """Serves one version of the weights to a number of workers, then is done."""

    def __init__(self, weights: Weights, version: int, workers: int, host: str = "127.0.0.1") -> None:
        self.version, self.token = version, secrets.token_hex(16)
        self.count = self.total = self.bytes = 0
        self.way = "nothing"  # how weights travelled, for people
        self.whole = False
        self.error: BaseException | None = None
        self._weights, self._expected = weights, workers
        self._doorway = Doorway(host, self.token)
        self.host, self.port = self._doorway.address
        self._workers: list[_Worker] = []
        self._buffers: dict[int, Tensor] = {}
        self._sent = self._taken = 0
        self._thread = threading.Thread(target=self._run, name="whet-weights", daemon=True)
        self._thread.start()

    def __enter__(self) -> WeightSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._doorway.close()  # wakes a thread that still waits for a worker
        self._thread.join()
        if self._buffers:
            self._buffers.clear()
            torch.cuda.ipc_collect()

    def offer(self) -> dict[str, str]:
        """Return the address at which a worker fetches these weights."""
        return {"host": self.host, "port": str(self.port), "token": self.token, "version": str(self.version)}

    def check(self, received: list[dict[str, str]]) -> None:
        """Raise unless every worker says that it has all of them, as they were sent."""
        sent = {"version": str(self.version), "tensors": str(self.count), "sum": str(self.total)}
        wrong = [each for each in received if any(each.get(name) != value for name, value in sent.items())]
        if wrong or len(received) != self._expected:
            raise RuntimeError(f"vLLM's workers hold other weights than were sent: {received}, sent {sent}")
        self.whole = all(each.get("whole") == "yes" for each in received)

    def _run(self) -> None:
        try:
            while len(self._workers) < self._expected:
                connection, device = self._doorway.admit()
                self._workers.append(_Worker(connection, device))
            self._doorway.close()
            for table, tensors, size in buckets(self._weights(), BUCKET_BYTES):
                self._deliver(table, tensors, size)
            while self._taken < self._sent:
                self._wait_for_workers()
            self._send({"done": True, "version": str(self.version), "count": self.count})
        except (OSError, EOFError):
            pass  # a worker hung up, or nobody came; the control channel says why
        except BaseException as error:  # reading the weights failed; whoever waits for the update raises it
            self.error = error
        finally:
            for worker in self._workers:
                worker.connection.close()

    def _deliver(self, table: list[list[Any]], tensors: list[Tensor], size: int) -> None:
        while self._sent - self._taken >= _AHEAD:
            self._wait_for_workers()
        device = next((each.device for each in tensors if each.device.type == "cuda"), torch.device("cpu"))
        seeing = self._seeing(device)
        flat, handle = self._buffer(device, size) if seeing else (torch.empty(size, dtype=torch.uint8), None)
        fill(flat[:size], table, tensors)
        found = checksum(flat[:size])  # waits for the copies
        message = {"tensors": table, "sum": found}
        if seeing:
            named = message | {"buffer": self._sent % _AHEAD, "bytes": size}
            self._send(named if handle is None else named | {"handle": handle}, only=seeing)
        others = [worker for worker in self._workers if worker not in seeing]
        if others:
            self._send(message, flat[:size].cpu().numpy().data, only=others)
        self.way = "this GPU's memory" if not others else "a connection" if not seeing else "both"
        self._sent += 1
        self.count, self.total, self.bytes = self.count + len(table), self.total + found, self.bytes + size

    def _buffer(self, device: torch.device, size: int) -> tuple[Tensor, dict[str, Any] | None]:
        """A buffer whose last bucket every worker has taken; its handle where workers do not have it yet."""
        index = self._sent % _AHEAD
        there = self._buffers.get(index)
        if there is not None and len(there) >= size:
            return there, None
        self._buffers[index] = made = torch.empty(max(size, BUCKET_BYTES), dtype=torch.uint8, device=device)
        return made, share(made)

    def _seeing(self, device: torch.device) -> list[_Worker]:
        """Workers on this GPU that can open its memory; each is tried once."""
        if device.type != "cuda":
            return []
        for worker in self._workers:
            if worker.sees is None:
                worker.sees = worker.device == device_name(device) and self._try(worker, device)
        return [worker for worker in self._workers if worker.sees]

    def _try(self, worker: _Worker, device: torch.device) -> bool:
        secret = secrets.randbelow(256)
        probe = torch.full((1 << 21,), secret, dtype=torch.uint8, device=device)
        torch.cuda.synchronize(device)
        send(worker.connection, {"probe": share(probe)})
        return _note(worker.connection).get("sees") == secret

    def _send(self, message: dict[str, Any], body: memoryview | None = None, only: list[_Worker] | None = None) -> None:
        for worker in self._workers if only is None else only:
            send(worker.connection, message, body)

    def _wait_for_workers(self) -> None:
        """Until every worker has taken one bucket more."""
        for worker in self._workers:
            _note(worker.connection)
        self._taken += 1


def _note(connection: socket.socket) -> dict[str, Any]:
    """Read a worker's answer; one that breaks the protocol counts as lost."""
    try:
        return receive_note(connection)
    except ValueError as error:
        raise ConnectionError(str(error)) from error


class WeightsAtHand:
    """The same for a vLLM in this process: it reads the learner's tensors themselves."""

    def __init__(self, weights: Weights, version: int) -> None:
        self.version, self.token = version, secrets.token_hex(16)
        self.count = self.total = self.bytes = 0
        self.way, self.whole = "this process's memory", False
        self.error: BaseException | None = None
        self._weights = weights

    def __enter__(self) -> WeightsAtHand:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """The learner's tensors, counted and summed up on the way."""
        self.count = self.total = self.bytes = 0
        sums: list[Tensor] = []
        try:
            for name, tensor in self._weights():
                self.count, self.bytes = self.count + 1, self.bytes + tensor.nbytes
                sums.append(tensor.contiguous().view(_AS_INTEGERS[tensor.element_size()]).sum(dtype=torch.int64))
                yield name, tensor
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.total = sum(int(each) for each in sums)

    def offer(self) -> dict[str, str]:
        """Return the handle by which a worker of this process finds the weights."""
        return {"host": "", "port": "0", "token": self.token, "version": str(self.version)}

    def check(self, received: list[dict[str, str]]) -> None:
        """Raise unless the worker took them, to the last."""
        if [each["version"] for each in received] != [str(self.version)] or not self.count:
            raise RuntimeError(f"vLLM holds other weights than it was given: {received}, version {self.version}")
        self.whole = all(each.get("whole") == "yes" for each in received)
