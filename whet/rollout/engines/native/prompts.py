"""Prompts one after the other in one row, with the images they show and the positions that those give to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedModel

from whet.model.modality import vision_of
from whet.rollout.engines.native.sequence import Request

if TYPE_CHECKING:
    from whet.model.vision import RowMedia


@dataclass(frozen=True, slots=True)
class PromptRow:
    """What a prefill runs on; all arrays are of the host."""

    ids_N: np.ndarray
    positions: np.ndarray  # (N,), or (3, N) where images give tokens a time and a place
    starts: np.ndarray  # of each prompt in the row
    lengths: np.ndarray
    media: RowMedia | None  # on the model's device; None where the row shows nothing


def lay_prompts(
    model: PreTrainedModel, requests: Sequence[Request], device: torch.device, but_last: bool = False
) -> PromptRow:
    """The prompts of requests, without their last tokens if so asked; requests learn how positions go on behind them.

    Every prompt must have a token left.
    """
    prompts, vision = [request.prompt for request in requests], vision_of(model)
    lengths = np.array([len(prompt.ids) - but_last for prompt in prompts])
    starts = lengths.cumsum() - lengths
    shown = [prompt for prompt in prompts if prompt.media is not None]
    positions = np.empty((vision.axes if vision is not None and shown else 1, int(lengths.sum())), dtype=np.int64)
    for request, start, length in zip(requests, starts, lengths):
        own, behind = np.arange(length)[None], len(request.prompt.ids)
        if vision is not None and request.prompt.media is not None:
            own, behind = vision.positions(request.prompt)
            request.last_offset = int(own[0, -1]) - (len(request.prompt.ids) - 1)
        request.offset = behind - len(request.prompt.ids)
        positions[:, start : start + length] = own[:, :length]
    media = None
    if vision is not None and shown:
        media = vision.row_media(list(zip(starts.tolist(), prompts)), device)
    ids_N = np.concatenate([prompt.ids[:length] for prompt, length in zip(prompts, lengths)])
    return PromptRow(ids_N, positions if len(positions) > 1 else positions[0], starts, lengths, media)
