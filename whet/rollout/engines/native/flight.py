"""A window of tokens on its way from the device to the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sequence import Sequence

LOOKAHEAD = 8  # tokens of a window: those that are drawn between two looks of the host


class Flight:
    """Tokens and log-probs (LOOKAHEAD, B) being copied to pinned memory, and the sequences they belong to."""

    def __init__(
        self,
        sequences: list[Sequence],
        tokens: Tensor,
        log_probs: Tensor,
        routes: Tensor | None = None,
        tops: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """`routes` (LOOKAHEAD, L, B, K) are the experts of the tokens that were read.

        `tops` are ids and log-probs (LOOKAHEAD, B, k) of the likeliest tokens.
        """
        self._sequences, B = sequences, len(sequences)
        for sequence in sequences:
            sequence.ahead += LOOKAHEAD
        cuda = tokens.device.type == "cuda"
        self._tokens, self._log_probs = _on_the_way(tokens[:, :B]), _on_the_way(log_probs[:, :B])
        self._routes: Tensor | None = None
        if routes is not None:  # (B, LOOKAHEAD, L, K): what a sequence has lies together
            self._routes = _on_the_way(routes[:, :, :B].permute(2, 0, 1, 3))
        self._tops = [_on_the_way(each[:, :B]) for each in tops or ()]
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
        routes = {} if self._routes is None else dict(zip(self._sequences, np.array(self._routes.numpy())))
        return Drawn(
            self._sequences,
            [row[:n] for row, n in zip(tokens.tolist(), counts)],
            [row[:n] for row, n in zip(log_probs.tolist(), counts)],
            self._likeliest(counts),
            routes,
        )

    def _likeliest(self, counts: list[int]) -> dict[Sequence, list[list[tuple[int, float]]]]:
        """The likeliest tokens of those that asked, as many as each asked for."""
        if not self._tops:
            return {}
        ids, log_probs = (each.transpose(0, 1).tolist() for each in self._tops)  # (B, LOOKAHEAD, k)
        asked = {s: (i, s.request.params.top_logprobs) for i, s in enumerate(self._sequences)}
        return {
            s: [list(zip(ids[i][t][:k], log_probs[i][t][:k])) for t in range(counts[i])]
            for s, (i, k) in asked.items()
            if k
        }


def _on_the_way(tensor: Tensor) -> Tensor:
    """A copy in host memory that is complete when the device has come so far.

    Both sides are contiguous: torch copies anything else through pageable memory, for which the host waits.
    """
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return copy.copy_(tensor.contiguous(), non_blocking=True)
