"""Bootstrap estimates of best, worst and majority of n from more samples a prompt.

For each n, 1000 times n of a prompt's samples are drawn with replacement (Efron, 1979), always from the same seed, so
that two evaluations of the same scores agree. Numbers are means over prompts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np

DRAWS = 1000
SEED = 42


def bootstrap_metrics(
    prompts: Sequence[Hashable], scores: Sequence[float], answers: Sequence[Hashable] | None = None
) -> dict[str, float]:
    """mean@N, std@N, and best@n, worst@n and (with answers) maj@n as /mean and /std, for n = 2, 4, … N.

    `prompts` says which prompt each score belongs to. N is the number of a prompt's samples, which may differ.
    """
    rows_of: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, prompt in enumerate(prompts):
        rows_of[prompt].append(row)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for rows in rows_of.values():
        values = np.array([scores[row] for row in rows], dtype=float)
        given = None if answers is None else [answers[row] for row in rows]
        for name, value in _of_prompt(values, given).items():
            found[name].append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def sizes(most: int) -> list[int]:
    """2, 4, 8, … and `most` itself; nothing for a single sample."""
    doubling = [2**power for power in range(1, most.bit_length()) if 2**power < most]
    return [*doubling, most] if most > 1 else []


def _of_prompt(values: np.ndarray, answers: list[Hashable] | None) -> dict[str, float]:
    N = len(values)
    metrics = {f"mean@{N}": float(values.mean())}
    if N == 1:
        return metrics
    metrics[f"std@{N}"] = float(values.std())
    for n in sizes(N):
        drawn = np.random.RandomState(SEED).choice(N, size=(DRAWS, n), replace=True)
        reduced: dict[str, np.ndarray] = {"best": values[drawn].max(axis=1), "worst": values[drawn].min(axis=1)}
        if answers is not None:
            reduced["maj"] = np.array([values[_majority(row, answers.__getitem__)] for row in drawn])
        for name, results in reduced.items():
            metrics |= {f"{name}@{n}/mean": float(results.mean()), f"{name}@{n}/std": float(results.std())}
    return metrics


def _majority(rows: np.ndarray, answer_of: Callable[[int], Hashable]) -> int:
    """The first of these rows whose answer is given most often; of equally frequent ones, the first given."""
    answers = [answer_of(row) for row in rows]
    most = Counter(answers).most_common(1)[0][0]
    return int(rows[answers.index(most)])
