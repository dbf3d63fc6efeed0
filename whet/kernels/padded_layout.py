"""Tables of a packed row of fixed size, at addresses that do not change: what a captured graph needs of a `Layout`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whet.kernels.layout import Layout
from whet.kernels.upload import upload


class PaddedLayout:
    """Segments that cover the beginning of a row of `tokens` tokens; the rest of the row is one segment more.

    Tiles that are left over have no queries. There are neither prefixes nor gradients.
    """

    past, chain = 0, None

    def __init__(self, tokens: int, segments: int, block: int, device: torch.device) -> None:
        """`segments` is the most there may be, and `block` the queries of a tile."""
        self.tokens, self.segments, self._block = tokens, segments, block
        # Every segment but a last of nothing begins a tile that may not be full.
        self._tiles = torch.zeros(tokens // block + segments + 1, 8, dtype=torch.int32, device=device)

    def query_tiles(self, block: int) -> Tensor:
        """(tiles, 8), as `Layout.query_tiles` has them."""
        if block != self._block:
            raise ValueError(f"this row was laid out in tiles of {self._block} queries, not of {block}")
        return self._tiles

    def lay(self, lengths: np.ndarray) -> None:
        """Lay segments of these lengths one after the other from the first token on."""
        used = int(lengths.sum())
        if len(lengths) > self.segments or used > self.tokens:
            raise ValueError(f"{len(lengths)} segments of {used} tokens do not fit into {self.segments}, {self.tokens}")
        covering = np.append(lengths, self.tokens - used)
        rows = np.zeros((len(covering), 4), dtype=np.int64)
        rows[:, 0], rows[:, 1] = covering.cumsum() - covering, covering
        tiles = np.zeros(self._tiles.shape, dtype=np.int32)
        found = Layout(rows, "cpu").query_tiles(self._block).numpy()
        tiles[: len(found)] = found
        self._tiles.copy_(upload(tiles, self._tiles.device))
