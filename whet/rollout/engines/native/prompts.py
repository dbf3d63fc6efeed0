"""Chunks of prompts and responses one after the other in one row, with the images and positions of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedModel

from whet.model.modality import vision_of
from whet.rollout.engines.native.sequence import Chunk

if TYPE_CHECKING:
    from whet.model.vision import RowMedia, Vision


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """Input of a prefill; all arrays are of the host."""

    ids_N: np.ndarray
    positions: np.ndarray  # (N,), or (3, N) where images give tokens a time and a place
    starts: np.ndarray  # of each chunk in the row
    lengths: np.ndarray
    media: RowMedia | None  # on the model's device; None where the row shows nothing


def lay_chunks(model: PreTrainedModel, chunks: Sequence[Chunk], device: torch.device) -> ChunkRow:
    """Lay chunks into one row. Requests whose prompts begin in it learn how positions continue behind the prompt.

    Every chunk must have a token.
    """
    vision = vision_of(model)
    # 1. Where each chunk lies in the row.
    lengths = np.array([stop - reading.at for reading, stop in chunks])
    starts = lengths.cumsum() - lengths
    # 2. A prompt with images is one chunk; what it shows is embedded from the start of that chunk on.
    shown = [
        (start, reading.request.prompt)
        for (reading, _), start in zip(chunks, starts.tolist())
        if reading.sequence is None and reading.request.prompt.media is not None
    ]
    # 3. Positions, (axes, N).
    positions = np.empty((vision.axes if vision is not None and shown else 1, int(lengths.sum())), dtype=np.int64)
    for chunk, start, length in zip(chunks, starts, lengths):
        positions[:, start : start + length] = _positions(chunk, vision)
    media = vision.row_media(shown, device) if vision is not None and shown else None
    ids_N = np.concatenate([reading.ids(reading.at, stop) for reading, stop in chunks])
    return ChunkRow(ids_N, positions if len(positions) > 1 else positions[0], starts, lengths, media)


def _positions(chunk: Chunk, vision: Vision | None) -> np.ndarray:
    """(axes or 1, tokens) of one chunk."""
    (reading, stop), request = chunk, chunk.reading.request
    end = len(request.prompt.ids)
    if reading.sequence is None and vision is not None and request.prompt.media is not None:
        own, behind = vision.positions(request.prompt)
        request.last_offset = int(own[0, -1]) - (end - 1)
        request.offset = behind - end
        return own[:, reading.at : stop]
    at = np.arange(reading.at, stop)[None]
    # Behind images, positions differ from indices by an offset: one for the last prompt token, one for what follows.
    return at + np.where(at < end, request.last_offset, request.offset)
