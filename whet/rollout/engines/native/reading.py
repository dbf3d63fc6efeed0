"""Attention of a prefill over pages: which pages chunks of prompts and responses write to, and which they see."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from whet.kernels.upload import upload
from whet.model.attention import Attention, packed_attention_for
from whet.model.paged import ExtendingAttention, RememberingAttention
from whet.rollout.engines.native.pages import PAGE, PromptPages
from whet.rollout.engines.native.sequence import Chunk, ChunkRow


class Places(NamedTuple):
    """Pages of the sequences that chunks belong to, and where in them each chunk begins."""

    table_CW: np.ndarray
    first_C: np.ndarray

    def slots(self, lengths: np.ndarray) -> np.ndarray:
        """(N,) slots of the cache for the tokens of all chunks."""
        ranges = (np.arange(first, first + length) for first, length in zip(self.first_C, lengths))
        return np.concatenate([listed[at // PAGE] * PAGE + at % PAGE for listed, at in zip(self.table_CW, ranges)])


def places_of(chunks: list[Chunk]) -> Places:
    """Look up the pages of chunks."""
    pages = []
    for reading, _ in chunks:
        held = cast(PromptPages, reading.request.prefilled)
        pages.append(held.pages if reading.sequence is None else held.shared + reading.sequence.pages)
    table_CW = np.zeros((len(chunks), max(map(len, pages))), dtype=np.int64)
    for listed, own in zip(table_CW, pages):
        listed[: len(own)] = own
    return Places(table_CW, np.array([reading.at for reading, _ in chunks]))


def prefill_attention(cache: Tensor, places: Places, row: ChunkRow) -> Attention:
    """Attention of a prefill: within the chunks, and to what was read before them."""
    if places.first_C.any():
        return ExtendingAttention(cache, places.table_CW, places.first_C, row.lengths)
    segments = np.stack([row.starts, row.lengths, *np.zeros((2, len(row.starts)), dtype=np.int64)], axis=1)
    packed = packed_attention_for(segments, cache.device)
    return RememberingAttention(packed, cache, upload(places.slots(row.lengths), cache.device))
