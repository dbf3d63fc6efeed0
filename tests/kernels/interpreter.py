"""What the interpreter of triton can promise: its products are numpy's, which a BLAS library computes."""

from __future__ import annotations

from functools import cache

import numpy as np
from kernels.conftest import DEVICE


@cache
def dots_keep_rows() -> bool:
    """Whether a row of `tl.dot` has the same bits wherever in its tile it stands.

    On a GPU it has. In the interpreter OpenBLAS decides, whose kernels for Haswell and Zen round differently at the
    edge of a tile, and those for other processors do not.
    """
    if DEVICE == "cuda":
        return True
    rng = np.random.default_rng(0)
    rows, weight = rng.standard_normal((8, 32), np.float32), rng.standard_normal((32, 64), np.float32)
    products = [np.matmul(np.repeat(row[None], 64, axis=0), weight) for row in rows]
    return all(np.array_equal(product, np.repeat(product[:1], 64, axis=0)) for product in products)
