"""Experts that tokens are sent to, written down as the engine reads them; see `whet/model/routing.py`."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.model.routing import Record, RoutingShape
from whet.rollout.engines.native.flight import LOOKAHEAD
from whet.rollout.engines.native.sequence import Chunk


class PassRecord(Record):
    """The routing of one pass over N tokens, as a tensor (L, N, K)."""

    def __init__(self, shape: RoutingShape, tokens: int, device: torch.device) -> None:
        self.routes_LNK = shape.buffer(tokens, device)
        super().__init__(self.routes_LNK)

    def to_chunks(self, chunks: list[Chunk]) -> None:
        """Give each chunk's request the experts of its tokens, before its reading advances; the host waits for them."""
        lengths = [stop - reading.at for reading, stop in chunks]
        for chunk, routes in zip(chunks, self.routes_LNK.transpose(0, 1).cpu().split(lengths)):
            chunk.reading.request.note_routes(chunk, routes.numpy())


class WindowRecord:
    """The routing of a window of decoding passes, at addresses that do not change, so that a graph can hold them."""

    def __init__(self, model: PreTrainedModel, slots: int, device: torch.device) -> None:
        self.shape, self._device = RoutingShape(model), device
        self._pass_LBK = self.shape.buffer(slots, device)
        self.window = self._pass_LBK.repeat(LOOKAHEAD, 1, 1, 1)  # (LOOKAHEAD, L, slots, K)

    def reading(self, tokens: int) -> PassRecord:
        """Record a prefill."""
        return PassRecord(self.shape, tokens, self._device)

    def decoding(self, B: int) -> Record:
        """Record a pass over the first B slots."""
        return Record(self._pass_LBK[:, :B])

    def keep(self, step_1: Tensor) -> None:
        """Put the pass that was recorded last into row `step_1` of the window."""
        self.window.index_copy_(0, step_1, self._pass_LBK[None])
