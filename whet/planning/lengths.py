"""Lengths of responses: drawn from a distribution, or read from the samples of a run; deterministic by seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

from whet.errors import UserError

DISTRIBUTIONS = ("fixed", "geometric", "lognormal", "uniform")
_SPREAD = 0.8  # sigma of the lognormal distribution: p99/p50 is 6.4
_ROUNDS = 60  # of bisection


def draw(kind: str, mean: float, most: int, count: int, seed: int = 0, spread: float = _SPREAD) -> list[int]:
    """Return `count` lengths between 1 and `most` whose distribution, cut at `most`, has this mean."""
    rng = random.Random(f"{kind}:{seed}")
    if kind == "fixed" or mean >= most:
        return [max(1, min(most, round(mean)))] * count
    if kind == "uniform":
        half = min(mean - 1, most - mean)
        return [max(1, round(rng.uniform(mean - half, mean + half))) for _ in range(count)]
    if kind == "geometric":
        scale = _matching(lambda scale: scale * (1 - math.exp(-most / scale)), mean, most)
        return [max(1, min(most, math.ceil(rng.expovariate(1 / scale)))) for _ in range(count)]
    if kind == "lognormal":
        median = _matching(lambda median: _cut_mean(median, spread, most), mean, most)
        return [max(1, min(most, round(median * math.exp(spread * rng.gauss(0, 1))))) for _ in range(count)]
    raise UserError(f"--lengths {kind}: choose one of {', '.join(DISTRIBUTIONS)}, or name a run folder")


def _matching(cut_mean: Callable[[float], float], mean: float, most: int) -> float:
    """Return the parameter at which the mean of the distribution, cut at `most`, is `mean`."""
    low, high = mean / 2, 1e4 * most
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cut_mean(middle) < mean else (low, middle)
    return low


def _cut_mean(median: float, spread: float, most: int) -> float:
    """Return E[min(X, most)] of a lognormal X."""
    at = (math.log(most) - math.log(median)) / spread
    below = median * math.exp(spread**2 / 2) * _normal(at - spread)
    return below + most * (1 - _normal(at))


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def read_lengths(run: Path) -> list[int]:
    """Return the response lengths in the samples that a run logged while it trained."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted((run / "samples").glob("train_*.parquet"))
    if not files:
        raise UserError(
            f"{run}: there are no samples/train_*.parquet in this folder; name the folder of a training run"
        )
    found: list[int] = []
    for file in files:
        try:
            found += [max(1, int(value)) for value in pq.read_table(file, columns=["length"])["length"].to_pylist()]
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise UserError(f"{file}: no lengths of responses could be read: {error}") from None
    return found
