"""Log-probs and entropies that an update computes of a few rows, kept for the token records of a run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whet.learn.ranks import Ranks
from whet.learn.scoring import Scored
from whet.types import Sample


class TokenRecorder:
    """Copies outputs of forward passes that are made anyway; nothing is read from the device before `values`."""

    def __init__(self, rows: Sequence[int], samples: Sequence[Sample]) -> None:
        self._places = {row: place for place, row in enumerate(rows)}
        self._width = max((len(samples[row].ids) for row in rows), default=0)
        self._parts: list[tuple[list[int], Tensor]] = []  # rows of a micro-batch, and (2, m, T) of it

    def add(self, rows: Sequence[int], scored: Scored) -> None:
        """Take in a micro-batch whose samples are these rows of the batch."""
        if any(row in self._places for row in rows):
            both_2mT = torch.stack([scored.log_probs_BT.detach().float(), scored.entropy_BT.detach().float()])
            self._parts.append((list(rows), both_2mT))

    def values(self, ranks: Ranks) -> Tensor:
        """Return (3, R, T): log-probs, entropies, and 1 for rows that a pass was made of; every rank must call it."""
        out_3RT = torch.zeros(3, len(self._places), self._width)
        for rows, both_2mT in self._parts:
            # 1. Places of the micro-batch's recorded rows among the R.
            inside = [i for i, row in enumerate(rows) if row in self._places]
            places = [self._places[rows[i]] for i in inside]
            # 2. Copy (2, m, t), cut or padded to the widest recorded response.
            width = min(self._width, both_2mT.shape[2])
            out_3RT[:2, places, :width] = both_2mT[:, inside, :width].cpu()
            out_3RT[2, places] = 1.0
        self._parts = []
        # 3. Each row is in the share of one rank, and 0 in the others.
        return ranks.summed(out_3RT)
