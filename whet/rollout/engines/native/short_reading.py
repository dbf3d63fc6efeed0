"""A prefill of few tokens as a pass over a row of fixed size, which a graph can hold.

Launched kernel by kernel, such a pass takes the host many times longer than the device. What is left of the row behind
the chunks is read like one more prompt, and written to page 0, which belongs to nobody. Attention is the kernel of any
other prefill, in which the bits of a token do not depend on what else is in its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whet.kernels.packed_attention import forward_blocks, packed_attention_forward
from whet.kernels.padded_layout import PaddedLayout
from whet.model.load import hidden_states
from whet.model.paged import RememberingAttention
from whet.rollout.engines.native.sequence import ChunkRow

if TYPE_CHECKING:
    from whet.rollout.engines.native.paged import PagedRunner

_SHORTEST, _LONGEST = 64, 2048  # tokens of a row; powers of two between them
_CHUNKS = 48  # most of one row


def size_for(row: ChunkRow) -> int | None:
    """Return the tokens of the row of fixed size that holds chunks, or None where they are too much or too many."""
    tokens = len(row.ids_N)
    if tokens > _LONGEST or len(row.lengths) > _CHUNKS or row.media is not None:
        return None
    return max(_SHORTEST, 1 << (tokens - 1).bit_length())


class ShortReading:
    """A row of `size` tokens at addresses that do not change."""

    def __init__(self, runner: PagedRunner, size: int) -> None:
        cache = runner.cache
        block = forward_blocks(cache.shape[-1], runner.model.dtype.itemsize)[0]
        self._rows = torch.zeros(3, size, dtype=torch.int64, device=runner.device)  # ids, positions, cache slots
        self._layout = PaddedLayout(size, _CHUNKS, block, runner.device)

    def fill(self, runner: PagedRunner, row: ChunkRow, slots_N: np.ndarray) -> None:
        """Lay chunks into the row; their keys and values go to these slots of the cache."""
        used = len(row.ids_N)
        rows = np.zeros(self._rows.shape, dtype=np.int64)
        rows[:, :used] = row.ids_N, row.positions, slots_N
        rows[1, used:] = np.arange(rows.shape[1] - used)
        self._rows.copy_(runner.to_device(rows))
        self._layout.lay(row.lengths)

    def launch(self, runner: PagedRunner) -> None:
        """Read the row; everything stays on the device."""
        ids_N, positions_N, slots_N = self._rows
        attention = RememberingAttention(_Padded(self._layout), runner.cache, slots_N)
        hidden_states(runner.model, ids_N, positions_N, attention)


class _Padded:
    """Attention within the segments of a row of fixed size."""

    def __init__(self, layout: PaddedLayout) -> None:
        self._layout = layout

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every token of the row; (N, H, D)."""
        q_NHD, k_NKD, v_NKD = (x.transpose(0, 1) for x in (query_HND, key_HND, value_HND))
        return packed_attention_forward(q_NHD, k_NKD, v_NKD, self._layout, scale, window)[0]
