"""What whet adds to each of vLLM's workers: taking new weights from the trainer.

vLLM mixes this class into its own worker (`worker_extension_cls`), and `collective_rpc` calls it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from whet_vllm_wire import checksum, receive, send, unpack


class WhetExtension:
    """Methods of a vLLM worker that `collective_rpc` can name."""

    reload_weights: Any  # these are the worker's own
    model_runner: Any
    device: Any

    def whet_take_weights(self, host: str, port: str, token: str, version: str) -> dict[str, str]:
        """Replace every weight by what the trainer sends from this address; the arguments fit into JSON."""
        self._whet_version: str | None = None  # until all of it is here, the weights are no version's
        self._whet_received = (0, 0)
        with socket.create_connection((host, int(port))) as connection:
            send(connection, {"token": token})
            self.reload_weights(weights_iterator=self._whet_stream(connection, version))
        if self._whet_version != version:
            raise RuntimeError("vLLM stopped reading before the last weight")
        self._whet_repack_tied_head()
        count, total = self._whet_received
        return {"version": version, "tensors": str(count), "sum": str(total)}

    def whet_weights_version(self) -> str:
        """The version of the weights in this worker; empty when none were taken whole."""
        return getattr(self, "_whet_version", None) or ""

    def _whet_repack_tied_head(self) -> None:
        """On a CPU a head multiplies by a packed copy, which a reload renews only where the head has its own weight."""
        if torch.device(self.device).type != "cpu":
            return
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        modules = list(self.model_runner.get_model().modules())
        embeddings = [m for m in modules if isinstance(m, VocabParallelEmbedding) and not isinstance(m, ParallelLMHead)]
        for head in modules:
            if isinstance(head, ParallelLMHead) and any(head.weight is each.weight for each in embeddings):
                head.quant_method.process_weights_after_loading(head)

    def _whet_stream(self, connection: socket.socket, version: str) -> Iterator[tuple[str, Tensor]]:
        count = total = 0
        while True:
            message, body = receive(connection)
            if message.get("done"):
                break
            flat = torch.frombuffer(body, dtype=torch.uint8)
            found = checksum(flat)
            if found != message["sum"]:
                raise RuntimeError(f"a bucket of weights arrived damaged: checksum {found}, sent {message['sum']}")
            yield from unpack(message["tensors"], flat)
            count, total = count + len(message["tensors"]), total + found
        if message["version"] != version or message["count"] != count:
            raise RuntimeError(f"{count} tensors of version {version} were expected, sent were {message}")
        self._whet_version, self._whet_received = version, (count, total)
