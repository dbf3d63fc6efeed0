"""Extension of vLLM's workers: take new weights from the trainer.

vLLM mixes this class into its own worker (`worker_extension_cls`), and `collective_rpc` calls it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from whet_vllm_share import device_name, open_shared
from whet_vllm_wire import checksum, receive, send, unpack

# By token: weights of a trainer in this very process, which need not travel.
AT_HAND: dict[str, Callable[[], Iterator[tuple[str, Tensor]]]] = {}


class WhetExtension:
    """Methods of a vLLM worker that `collective_rpc` can name."""

    reload_weights: Any  # these are the worker's own
    model_runner: Any
    device: Any

    def whet_take_weights(self, host: str, port: str, token: str, version: str) -> dict[str, str]:
        """Replace every weight by what the trainer sends from this address; the arguments fit into JSON.

        What comes back says what was received, and whether every parameter was written: a worker that can say so may
        throw its weights away while it sleeps.
        """
        self._whet_version: str | None = None  # until all of it is here, the weights are no version's
        device, received = torch.device(self.device), {}
        if token in AT_HAND:
            whole = self._whet_load(AT_HAND[token]())
        else:
            with socket.create_connection((host, int(port))) as connection:
                stream = Stream(connection, token, device)
                whole = self._whet_load(iter(stream))
                received = stream.received(version)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._whet_version = version
        return {"version": version, **received, "whole": "yes" if whole else "unknown"}

    def whet_weights_version(self) -> str:
        """The version of the weights in this worker; empty when none were taken whole."""
        return getattr(self, "_whet_version", None) or ""

    def _whet_load(self, weights: Iterator[tuple[str, Tensor]]) -> bool:
        """Hand the weights to vLLM; whether it is certain that every parameter was written."""
        model = self.model_runner.get_model()
        if not _loads_in_place(model, torch.device(self.device)):
            self.reload_weights(weights_iterator=weights)
            self._whet_repack_tied_head(model)
            return False
        with torch.no_grad():
            loaded = model.load_weights(weights)
        missing = {name for name, _ in model.named_parameters()} - set(loaded or ())
        if missing:
            raise RuntimeError(
                f"the trainer's weights have nothing for {', '.join(sorted(missing)[:5])} of vLLM's model"
            )
        return True

    def _whet_repack_tied_head(self, model: nn.Module) -> None:
        """Renew the packed copy by which a tied head multiplies on a CPU; a reload renews only untied ones."""
        if torch.device(self.device).type != "cpu":
            return
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        modules = list(model.modules())
        embeddings = [m for m in modules if isinstance(m, VocabParallelEmbedding) and not isinstance(m, ParallelLMHead)]
        for head in modules:
            if isinstance(head, ParallelLMHead) and any(head.weight is each.weight for each in embeddings):
                head.quant_method.process_weights_after_loading(head)


def _loads_in_place(model: nn.Module, device: torch.device) -> bool:
    """Return True if vLLM uses weights as loaded: plain products on a GPU, nothing packed or quantized.

    Loading into them takes a tenth of the time of `reload_weights`, which builds every layer anew for those that are.
    """
    if device.type != "cuda":
        return False
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    plain = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    methods = [getattr(module, "quant_method", None) for module in model.modules()]
    return all(method is None or type(method) in plain for method in methods)


class Stream:
    """The weights that a trainer sends: buckets of bytes, or the name of a buffer on this GPU that holds one."""

    def __init__(self, connection: socket.socket, token: str, device: torch.device) -> None:
        """Ask for the weights that go by this token, for a worker on this device."""
        self._connection, self._device = connection, device
        self._opened: dict[int, Tensor] = {}
        self._count = self._total = 0
        self._end: dict[str, Any] = {}
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(connection, {"token": token, "device": device_name(device)})

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        while True:
            message, body = receive(self._connection)
            if message.get("done"):
                self._end = message
                self._opened.clear()
                return
            if "probe" in message:
                send(self._connection, self._try_to_open(message))
                continue
            yield from self._bucket(message, body)

    def received(self, version: str) -> dict[str, str]:
        """Return the amount received; RuntimeError unless it is all of this version."""
        if not self._end:
            raise RuntimeError("vLLM stopped reading before the last weight")
        if self._end["version"] != version or self._end["count"] != self._count:
            raise RuntimeError(f"{self._count} tensors of version {version} were expected, sent were {self._end}")
        return {"tensors": str(self._count), "sum": str(self._total)}

    def _bucket(self, message: dict[str, Any], body: bytearray) -> list[tuple[str, Tensor]]:
        """The tensors of one bucket, which are this process's own: the trainer may fill its buffer again."""
        if "buffer" in message:
            if "handle" in message:
                self._opened[message["buffer"]] = open_shared(message["handle"], self._device)
            flat = self._opened[message["buffer"]][: message["bytes"]]
            tensors = [(name, tensor.clone()) for name, tensor in unpack(message["tensors"], flat)]
        else:
            flat = torch.frombuffer(body, dtype=torch.uint8)
            tensors = list(unpack(message["tensors"], flat))
        found = checksum(flat)  # on a GPU this waits for the copies before it, too
        if found != message["sum"]:
            raise RuntimeError(f"a bucket of weights arrived damaged: checksum {found}, sent {message['sum']}")
        self._count, self._total = self._count + len(tensors), self._total + found
        send(self._connection, {"took": self._count})
        return tensors

    def _try_to_open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return True if the trainer's memory can be opened here; namespaces or drivers may forbid it."""
        try:
            return {"sees": int(open_shared(message["probe"], self._device)[0])}
        except (RuntimeError, OSError) as error:
            return {"sees": None, "why": str(error).splitlines()[0]}
