"""A window of tokens on its way from the device to the host."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sequence import Sequence

LOOKAHEAD = 8  # tokens of a window: those that are drawn between two looks of the host


class Flight:
    """Tokens and log-probs (LOOKAHEAD, B) being copied to pinned memory, and the sequences they belong to."""

    def __init__(self, sequences: list[Sequence], tokens: Tensor, log_probs: Tensor) -> None:
        self._sequences, B = sequences, len(sequences)
        for sequence in sequences:
            sequence.ahead += LOOKAHEAD
        cuda = tokens.device.type == "cuda"
        self._tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=cuda)[:, :B]
        self._log_probs = torch.empty(log_probs.shape, dtype=log_probs.dtype, pin_memory=cuda)[:, :B]
        self._tokens.copy_(tokens[:, :B], non_blocking=True)
        self._log_probs.copy_(log_probs[:, :B], non_blocking=True)
        self._landed = torch.cuda.Event() if cuda else None
        if self._landed is not None:
            self._landed.record()

    def read(self) -> Drawn:
        """Wait for it, and give each sequence what it drew before it ended."""
        if self._landed is not None:
            self._landed.synchronize()
        for sequence in self._sequences:
            sequence.ahead -= LOOKAHEAD
        tokens, log_probs = self._tokens.numpy().T, self._log_probs.numpy().T
        counts = (tokens >= 0).sum(axis=1).tolist()
        return Drawn(
            self._sequences,
            [row[:n] for row, n in zip(tokens.tolist(), counts)],
            [row[:n] for row, n in zip(log_probs.tolist(), counts)],
        )
