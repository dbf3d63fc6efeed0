"""Attention of a prefill over pages: which pages chunks of prompts and responses write to, and which they see."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from whet.model.attention import Attention, packed_attention_for
from whet.model.paged import ExtendingAttention, RememberingAttention
from whet.rollout.engines.native.pages import PAGE, PromptPages
from whet.rollout.engines.native.sequence import Chunk, ChunkRow


def prefill_attention(cache: Tensor, chunks: list[Chunk], row: ChunkRow) -> Attention:
    """Attention of a prefill: within the chunks, and to what was read before them."""
    pages = []
    for reading, _ in chunks:
        held = cast(PromptPages, reading.request.prefilled)
        pages.append(held.pages if reading.sequence is None else held.shared + reading.sequence.pages)
    table_CW = np.zeros((len(chunks), max(map(len, pages))), dtype=np.int64)
    for listed, own in zip(table_CW, pages):
        listed[: len(own)] = own
    first_C = np.array([reading.at for reading, _ in chunks])
    if first_C.any():
        return ExtendingAttention(cache, table_CW, first_C, row.lengths)
    segments = np.stack([row.starts, row.lengths, *np.zeros((2, len(chunks)), dtype=np.int64)], axis=1)
    slots = [listed[at // PAGE] * PAGE + at % PAGE for listed, at in zip(table_CW, map(np.arange, row.lengths))]
    packed = packed_attention_for(segments, cache.device)
    return RememberingAttention(packed, cache, to_device(np.concatenate(slots), cache.device))


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy to a device; the host does not wait."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
