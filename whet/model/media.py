"""Join the processor's tensors of several pieces of a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from whet.types import Media


def join_media(pieces: Iterable[Media | None]) -> Media | None:
    """Return images, videos and processor inputs of all pieces in order; None if no piece has any."""
    shown = [piece for piece in pieces if piece is not None]
    if len(shown) < 2:
        return shown[0] if shown else None
    values: dict[str, list[Any]] = {}
    for piece in shown:
        for name, value in piece.inputs.items():
            values.setdefault(name, []).append(value)
    inputs = {
        name: torch.cat(given) if isinstance(given[0], Tensor) else [item for each in given for item in each]
        for name, given in values.items()
    }
    images = [image for piece in shown for image in piece.images]
    return Media(images, [video for piece in shown for video in piece.videos], inputs)
